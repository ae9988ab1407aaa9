//! Units of a bucket that are walked and chosen from together: a few kernels for all of them. Layers are small and many,
//! and a kernel for each would take longer to start than to run.

use std::ops::Range;
use std::sync::Arc;

use super::Cuda;
use super::choose::Chosen;
use super::device::Device;
use super::list::DeviceList;
use super::memory::{Buffer, Pinned};
use super::survey::CudaLater;
use super::unit::{DeviceTables, Tables};
use super::walk::{CHOICE, HEAD, Head, LEAST, Together};
use crate::Result;

/// The words of a selection, in the order of `source/common.cu`.
const WORDS: usize = 6;

/// So many tables are kept: units that have nothing to send in some steps may make for ever new ones.
const KEPT: usize = 64;

/// The tables of such units.
#[derive(Debug)]
pub(super) struct Batch {
    tables: DeviceTables,
    /// The unit of each piece, and where the tiles of each unit begin.
    piece_units: Buffer<u32>,
    unit_tiles: Buffer<u32>,
}

impl Batch {
    fn new(device: &Arc<Device>, units: &[CudaLater]) -> Result<Batch> {
        let (mut tables, mut piece_units, mut unit_tiles) = (Tables::new(), Vec::new(), vec![0]);
        for (number, unit) in units.iter().enumerate() {
            tables.add(unit.ranges());
            piece_units.resize(tables.count() as usize, number as u32);
            unit_tiles.push(tables.tiles());
        }
        Ok(Batch {
            tables: tables.on(device)?,
            piece_units: Buffer::of(device, &piece_units)?,
            unit_tiles: Buffer::of(device, &unit_tiles)?,
        })
    }
}

/// The heads of units that were walked together, on the device and in host memory.
#[derive(Debug)]
pub(super) struct Heads {
    memory: Buffer<u64>,
    seen: Pinned<u64>,
}

impl Heads {
    pub fn new(device: &Arc<Device>) -> Heads {
        Heads { memory: Buffer::empty(device), seen: Pinned::empty(device) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        8 * (self.memory.len() + self.seen.slice().len())
    }

    /// What the head of a unit said when all were fetched and waited for.
    pub fn read(&self, number: usize, elements: usize) -> (Head, Chosen) {
        let seen = &self.seen.slice()[HEAD * number..HEAD * (number + 1)];
        (Head::of(seen, elements), Chosen::of(&seen[CHOICE..]))
    }
}

impl Cuda {
    /// Walks all units, lets the device choose the best of each, and waits: the heads are in host memory then, and so are
    /// the lists if they are short.
    pub(super) fn choose_together(
        &mut self,
        units: &[CudaLater],
        positions: &mut DeviceList<u32>,
        values: &mut DeviceList<f32>,
    ) -> Result<()> {
        self.heads.memory.reserve(HEAD * units.len(), 0)?;
        self.heads.seen.reserve(HEAD * units.len())?;
        let mut first = 0;
        for alike in units.chunk_by(|a, b| a.job() == b.job()) {
            self.choose_alike(alike, first, (positions.at(0), values.at(0)))?;
            first += alike.len();
        }
        if let Some((place, other)) = units.first().map(CudaLater::places) {
            // With a unit that was chosen from by itself, anything may have come to the host in their place.
            positions.outdated(place);
            values.outdated(other);
        }
        positions.fetch_ahead(0)?;
        values.fetch_ahead(0)?;
        self.heads.seen.fetch(0..HEAD * units.len(), self.heads.memory.address())?;
        self.device.wait()
    }

    /// The same for units that are walked alike; their heads stand from `first` on.
    fn choose_alike(&mut self, units: &[CudaLater], first: usize, lists: (u64, u64)) -> Result<()> {
        let (batch, mut base) = (self.batch(units)?, 0);
        let mut selections: Vec<[u32; WORDS]> = Vec::with_capacity(units.len());
        for unit in units {
            let capacity = unit.capacity() as u32;
            let (positions, values) = unit.places();
            let floor = unit.floor().max(LEAST).to_bits();
            selections.push([floor, base, capacity, unit.k() as u32, positions as u32, values as u32]);
            base += capacity;
        }
        self.work.reserve_candidates(base as usize)?;
        let selections = self.upload.send(&selections)?;
        let together = Together { units: batch.piece_units.address(), selections };
        let heads = self.heads.memory.at(HEAD * first);
        let of_units = (batch.unit_tiles.address(), units.len());
        self.work.walk_units(&units[0].job(), &batch.tables, together, of_units, heads)?;
        self.chooser.choose_each(&self.work, (selections, units.len()), heads, lists)
    }

    /// The tables of units, made the first time.
    fn batch(&mut self, units: &[CudaLater]) -> Result<Arc<Batch>> {
        let none = [0..0];
        let key: Vec<Range<usize>> =
            units.iter().flat_map(|unit| unit.ranges().iter().chain(&none)).cloned().collect();
        if let Some(batch) = self.batches.get(&key) {
            return Ok(batch.clone());
        }
        let batch = Arc::new(Batch::new(&self.device, units)?);
        if self.batches.len() == KEPT {
            self.batches.clear();
        }
        self.batches.insert(key, batch.clone());
        Ok(batch)
    }
}
