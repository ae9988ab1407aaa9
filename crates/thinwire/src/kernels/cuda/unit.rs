//! Units on the device: how their elements are cut for the kernels.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::device::Device;
use super::memory::Buffer;
use crate::Result;

/// Elements that a warp walks: as many as the CPU before it adds up its lanes, so that sums are made in the same order.
pub(super) const PIECE: usize = 4096;
/// Elements whose sums are made before those of the next are begun: as the CPU's.
const TILE: usize = 1 << 18;
const LANES: usize = 16;

/// How vectors are cut into pieces, and the pieces gathered into tiles: the tables the kernels go by.
#[derive(Debug)]
pub(super) struct Tables {
    pieces: Vec<u32>,
    piece_tiles: Vec<u32>,
    tile_starts: Vec<u32>,
}

impl Tables {
    pub fn new() -> Tables {
        Tables { pieces: Vec::new(), piece_tiles: Vec::new(), tile_starts: vec![0] }
    }

    /// Adds the ranges of a unit.
    pub fn add(&mut self, ranges: &[Range<usize>]) {
        for range in ranges {
            for tile in range.clone().step_by(TILE) {
                let end = range.end.min(tile + TILE);
                // Whole rows; the last few elements are a piece of their own, as on the CPU.
                let whole = tile + (end - tile) / LANES * LANES;
                let number = self.tiles();
                let starts = (tile..whole).step_by(PIECE).map(|start| start..whole.min(start + PIECE));
                for piece in starts.chain([whole..end]).filter(|piece| !piece.is_empty()) {
                    self.pieces.extend([piece.start as u32, piece.len() as u32]);
                    self.piece_tiles.push(number);
                }
                self.tile_starts.push(self.count());
            }
        }
    }

    /// Pieces so far.
    pub fn count(&self) -> u32 {
        self.piece_tiles.len() as u32
    }

    /// Tiles so far.
    pub fn tiles(&self) -> u32 {
        self.tile_starts.len() as u32 - 1
    }

    /// The same on the device.
    pub fn on(&self, device: &Arc<Device>) -> Result<DeviceTables> {
        Ok(DeviceTables {
            pieces: Buffer::of(device, &self.pieces)?,
            count: self.count(),
            piece_tiles: Buffer::of(device, &self.piece_tiles)?,
            tile_starts: Buffer::of(device, &self.tile_starts)?,
            tiles: self.tiles(),
        })
    }
}

/// [`Tables`] on the device.
#[derive(Debug)]
pub(super) struct DeviceTables {
    pub pieces: Buffer<u32>,
    pub count: u32,
    pub piece_tiles: Buffer<u32>,
    pub tile_starts: Buffer<u32>,
    pub tiles: u32,
}

/// A unit cut into pieces.
#[derive(Debug)]
pub(super) struct Unit {
    pub elements: usize,
    pub tables: DeviceTables,
    /// The positions of all its elements, where somebody has asked for them.
    positions: OnceLock<Buffer<u32>>,
}

impl Unit {
    pub fn new(device: &Arc<Device>, ranges: &[Range<usize>]) -> Result<Unit> {
        let mut tables = Tables::new();
        tables.add(ranges);
        Ok(Unit {
            elements: ranges.iter().map(Range::len).sum(),
            tables: tables.on(device)?,
            positions: OnceLock::new(),
        })
    }

    /// The address of the positions of all elements.
    pub fn positions(&self, device: &Arc<Device>, ranges: &[Range<usize>]) -> Result<u64> {
        if let Some(positions) = self.positions.get() {
            return Ok(positions.address());
        }
        let all: Vec<u32> = ranges.iter().flat_map(|range| range.start as u32..range.end as u32).collect();
        let made = Buffer::of(device, &all)?;
        Ok(self.positions.get_or_init(|| made).address())
    }
}
