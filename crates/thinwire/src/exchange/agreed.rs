//! Leaders name the coordinates, and all ranks sum their values there: IWP and AR-Topk are one protocol.
//!
//! 1. Everybody's gradient enters its memory; the leaders select. (With the largest norm leading, everybody
//!    selects, and the norms are gathered.)
//! 2. Each leader's coordinates are broadcast; the agreed ones are the union.
//! 3. Everybody's values there are summed by an all-reduce.
//! 4. Everybody's memory forgets those coordinates, also where its own value was small: it has been summed.
//!
//! A rank that can't take part says so without a message of its own: a leader by an empty proposal, any other by
//! a NaN in the place behind the last value.

use super::Leaders;
use super::lane::{Lane, Route, Way};
use super::notes;
use super::sums::form_of;
use crate::group::{Algorithm, Gathered, Precision, Sum};
use crate::kernels::Kernels;
use crate::pipeline::InputOn;
use crate::{Error, Result};

impl<K: Kernels> Lane<K> {
    /// With `leaders` or, where everything is sent, without.
    pub(super) fn travel_agreed(
        &mut self,
        route: &mut Route<'_, K>,
        input: &InputOn<'_, K>,
        leaders: Option<Leaders>,
    ) -> Result<bool> {
        let (rank, size, step) = (route.group.rank(), route.group.size(), input.progress.step);
        let known = leaders.map_or_else(Vec::new, |leaders| leaders.of_step(step, size));
        let everybody_chooses = matches!(leaders, None | Some(Leaders::LargestNorm | Leaders::Nobody));
        match self.compressor.begin(route.kernels, input, everybody_chooses || known.contains(&rank)) {
            Ok(report) => (self.report, self.way) = (report, Way::Agreed),
            Err(error) => self.refuse(error)?,
        }
        let count = match leaders {
            None | Some(Leaders::Nobody) => Some(self.compressor.values_without_proposal(input.progress)),
            Some(Leaders::LargestNorm) => match self.largest_norm(route)? {
                Some(leader) => self.follow(route, input, &[leader])?,
                None => None,
            },
            Some(_) => self.follow(route, input, &known)?,
        };
        let Some(count) = count else { return Ok(false) };
        self.sum(route, count)
    }

    /// The rank whose selection has the largest squared norm; `None` if some rank can't take part.
    fn largest_norm(&mut self, route: &mut Route<'_, K>) -> Result<Option<usize>> {
        let norm = self.compressor.selected_energy(route.kernels)?.to_le_bytes();
        let mine: &[u8] = if self.refusal.is_none() { &norm } else { &[] };
        let mut norms = Gathered::default();
        self.timed_spread(|_| route.group.all_gather(mine, norm.len(), Algorithm::Tree, &mut norms))?;
        self.absent = norms.iter().position(<[u8]>::is_empty);
        if self.absent.is_some() {
            return Ok(None);
        }
        let step = route.group.marked().step;
        let norm_of = |(rank, bytes): (usize, &[u8])| {
            bytes.try_into().map(f64::from_le_bytes).map_err(|_| {
                let reason = format!("its norm has {} bytes; expected {}", bytes.len(), norm.len());
                Error::BadMessage { rank, step, reason }
            })
        };
        let norms: Vec<f64> = norms.iter().enumerate().map(norm_of).collect::<Result<_>>()?;
        Ok(Some(Leaders::largest(norms.into_iter())))
    }

    /// Hears the leaders and adopts what they name: how many values travel, or `None` if a leader can't lead.
    fn follow(
        &mut self,
        route: &mut Route<'_, K>,
        input: &InputOn<'_, K>,
        leaders: &[usize],
    ) -> Result<Option<usize>> {
        let limit = self.message_limit();
        self.leader = leaders.first().copied();
        // About twelve bits a coordinate; every rank estimates the same.
        let how = route.spread_algorithm(self.compressor.values_without_proposal(input.progress) * 3 / 2);
        self.proposals.resize_with(leaders.len(), Vec::new);
        for (number, &leader) in leaders.iter().enumerate() {
            let mut proposal = std::mem::take(&mut self.proposals[number]);
            proposal.clear();
            if leader == route.group.rank() && self.refusal.is_none() {
                let written = self.compressor.propose(route.kernels, input, &mut proposal, &mut self.report);
                written.or_else(|error| self.refuse(error))?;
            }
            self.timed_spread(|_| route.group.broadcast(leader, &mut proposal, limit, how))?;
            self.report.index_bytes += proposal.len();
            self.proposals[number] = proposal;
            if self.proposals[number].is_empty() {
                self.absent = Some(leader);
                return Ok(None);
            }
        }
        let expected = self.compressor.header(input);
        let proposals = leaders.iter().copied().zip(self.proposals.iter().map(Vec::as_slice));
        let count = self.compressor.agree(proposals, &expected)?;
        if self.refusal.is_none() {
            self.compressor.adopt(route.kernels, &mut self.report)?;
        }
        Ok(Some(count))
    }

    /// Sums the values of all ranks, and one more in which a rank that can't take part has a NaN.
    fn sum(&mut self, route: &mut Route<'_, K>, count: usize) -> Result<bool> {
        let (form, precision) = form_of(self.compressor.recipe());
        let bytes = precision.width() * (count + 1);
        (self.report.values, self.report.value_bytes) = (count, bytes);
        self.report.dense_bytes = precision.width() * self.report.dense;
        let mut means = std::mem::take(&mut self.means);
        means.clear();
        let how = route.sum_algorithm(bytes);
        if precision == Precision::F32 {
            match self.refusal {
                None => means.extend_from_slice(self.compressor.values(route.kernels)?),
                Some(_) => means.resize(count, 0.0),
            }
            means.push(self.flag());
            let (rank, ranks) = (route.group.rank(), route.group.size());
            notes::push(&self.note, rank, ranks, &mut means);
            self.timed_sum(|_| route.group.all_reduce(Sum::F32(&mut means), how))?;
            notes::pop(self.note.len(), ranks, &mut means, &mut self.notes);
            let factor = 1.0 / route.group.size() as f32;
            means.iter_mut().for_each(|sum| *sum *= factor);
        } else {
            if self.refusal.is_none() {
                let values = self.compressor.values(route.kernels)?;
                match self.halves.round(&form, values, route.group.size()) {
                    Ok(clipped) => {
                        self.report.clipped += clipped;
                        self.report.energy_sent = (self.report.energy_sent - self.halves.lost()).max(0.0);
                        self.compressor.keep_rest(route.kernels, self.halves.sent())?;
                    }
                    Err(error) => self.refusal = Some(error),
                }
            }
            if self.refusal.is_some() {
                self.halves.zeros(count);
            }
            self.halves.push(precision, self.flag());
            self.timed_sum(|lane| lane.halves.sum(route.group, how, precision, &mut means))?;
            if !self.note.is_empty() {
                // Words would not survive in halves: they follow in a sum of their own.
                let (rank, ranks, mut words) = (route.group.rank(), route.group.size(), Vec::new());
                notes::push(&self.note, rank, ranks, &mut words);
                self.timed_sum(|_| route.group.all_reduce(Sum::F32(&mut words), Algorithm::Tree))?;
                notes::pop(self.note.len(), ranks, &mut words, &mut self.notes);
            }
        }
        let all_took_part = means.pop().is_some_and(|flag| !flag.is_nan());
        if all_took_part && let Some(mean) = means.iter().find(|mean| !mean.is_finite()) {
            // The same on every rank, so that all of them skip the step.
            self.refusal = Some(Error::BadValues {
                form: form.name(),
                found: format!("a sum over all ranks of {mean}"),
                expected: "finite sums".into(),
            });
        }
        self.means = means;
        self.report.frame_bytes = self.report.index_bytes + self.report.value_bytes;
        Ok(all_took_part && self.refusal.is_none())
    }

    /// What this rank puts behind its last value.
    fn flag(&self) -> f32 {
        if self.refusal.is_some() { f32::NAN } else { 0.0 }
    }

    pub(super) fn settle_agreed(&mut self, kernels: &mut K, output: &mut K::Gradient) -> Result<()> {
        self.compressor.commit(kernels)?;
        self.compressor.deliver(kernels, &self.means, output)
    }
}
