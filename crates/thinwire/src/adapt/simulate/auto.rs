//! The controller at work, with the delays that it has in a training.
//!
//! What a step took is told with the next one. What the controller makes of it is told with the one after that, and
//! all ranks do it in the one that follows: three steps from what happened to what is done about it. See
//! `synchronizer/adaptation.rs`, whose order of things this is.

use super::clock::{Clock, Course, Shown};
use super::cluster::GAIN;
use super::run::Recorder;
use super::{Scene, Step};
use crate::Result;
use crate::adapt::Limits;
use crate::adapt::controller::{Controller, EXPLORATION, Observation, Wish};
use crate::adapt::cost::Network;
use crate::adapt::decision::{Choice, Decision};
use crate::adapt::gain::LADDER;
use crate::adapt::price::Way;
use crate::adapt::probe::Budget;

/// Rank 0's seconds for each step whose gains are looked at: 65,536 elements at five densities, 10 ns each.
const SHADOW: f64 = 65_536.0 * LADDER.len() as f64 * 10e-9;
/// Rank 0's seconds for a search.
const SEARCH: f64 = 3e-3;
/// The largest message that is sent to tell the bandwidth while training.
const MOST_ASKED: usize = 1 << 20;
/// By how much a measured gain is off.
const GAIN_NOISE: f64 = 0.02;

/// What rank 0 tells all others.
#[derive(Debug, Clone, Default)]
struct Order {
    choice: Choice,
    ask: Ask,
}

/// What is asked of the network behind a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Ask {
    #[default]
    Nothing,
    Latency,
    Both,
}

pub(super) struct Auto<'a> {
    scene: &'a Scene,
    controller: Controller,
    ways: Vec<Way>,
    in_force: Order,
    next: Order,
    ordered: Option<Order>,
    measured: Option<Observation>,
    /// Steps that an exploration still has to see.
    exploring: Option<usize>,
    /// What rank 0 has to do before its next step.
    delay: f64,
}

impl<'a> Auto<'a> {
    /// Looks at the network, and makes the first choice.
    pub fn new(
        scene: &'a Scene,
        limits: &Limits,
        clock: &mut Clock<'_>,
        recorder: &mut Recorder,
    ) -> Result<Auto<'a>> {
        let (network, seconds, bytes) = clock.probe(0, Budget::default())?;
        recorder.probed(seconds, bytes);
        let mut controller = Controller::new(limits, &scene.buckets, scene.cluster.workers, network)?;
        recorder.decided(controller.start(0, 1e-9));
        let next = Order { choice: controller.choice().clone(), ask: Ask::Nothing };
        Ok(Auto {
            scene,
            ways: controller.ways().to_vec(),
            controller,
            in_force: Order::default(),
            ordered: Some(next.clone()),
            next,
            measured: None,
            exploring: None,
            delay: SEARCH,
        })
    }

    pub fn step(&mut self, step: usize, clock: &mut Clock<'_>, recorder: &mut Recorder) -> Result<Step> {
        let began = clock.now();
        self.in_force.ask = Ask::Nothing;
        if let Some(order) = self.ordered.take() {
            self.in_force = order;
        }
        let told = self.next.clone();
        let shadow = if self.exploring.is_some() { SHADOW } else { 0.0 };
        let delay = std::mem::take(&mut self.delay) + shadow;
        recorder.adapting += delay;
        let choice = &self.in_force.choice;
        let course = Course {
            ways: &self.ways,
            choice: &choice.ways,
            density: choice.density,
            note: 4.0 * (9 + choice.ways.len().div_ceil(4)) as f64,
            delay,
            echo: self.in_force.ask == Ask::Latency,
        };
        let shown = clock.step(step, &course);
        if let Some(seconds) = shown.echo {
            recorder.probed(seconds, 0.0);
        }
        let mut found = None;
        if self.in_force.ask == Ask::Both {
            let budget = Budget { most_bytes: MOST_ASKED, ..Budget::default() };
            let (network, seconds, bytes) = clock.probe(step, budget)?;
            recorder.probed(seconds, bytes);
            found = Some(network);
        }
        let dense = choice.ways.iter().all(|way| self.ways[*way].is_dense());
        let gain = if dense { 1.0 } else { self.scene.gains.curve(clock.part(step)).at(choice.density) };
        let number = choice.number;
        self.end(step, clock, recorder, told, (shown, found), gain)?;
        Ok(Step {
            network: shown.network.unwrap_or_else(|| clock.network(step)),
            seconds: clock.now() - began,
            bytes: shown.bytes,
            gain,
            choice: number,
        })
    }

    fn end(
        &mut self,
        step: usize,
        clock: &Clock<'_>,
        recorder: &mut Recorder,
        told: Order,
        (shown, found): (Shown, Option<Network>),
        gain: f64,
    ) -> Result<()> {
        self.ordered = Some(told);
        if let Some(seen) = self.measured.take() {
            let wish = self.controller.observe(&Observation { step: step as u64, ..seen })?;
            let ask = match wish {
                Wish::Probe => Ask::Latency,
                Wish::Look => Ask::Both,
                _ => Ask::Nothing,
            };
            self.next = Order { choice: self.controller.choice().clone(), ask };
            match wish {
                Wish::Nothing | Wish::Probe | Wish::Look => {}
                Wish::Explore => self.exploring = Some(EXPLORATION + 1),
                Wish::Change(decision) => self.decided(*decision, recorder),
            }
        }
        if let Some(network) = found
            && let Some(decision) = self.controller.probed(step as u64, network)?
        {
            self.decided(decision, recorder);
        }
        if let Some(left) = &mut self.exploring {
            *left -= 1;
            if *left == 0 {
                self.exploring = None;
                let curve = self.scene.gains.curve(clock.part(step));
                recorder.explored(step);
                if let Some(decision) = self.controller.explored(step as u64, curve)? {
                    self.decided(decision, recorder);
                }
            }
        }
        let noise = 2.0 * GAIN_NOISE * (self.scene.cluster.part(step, 0, GAIN) - 0.5);
        // The first step has no end before it, and says nothing.
        self.measured = (step > 0).then_some(Observation {
            step: 0,
            number: self.in_force.choice.number,
            sum: shown.sum,
            spread: shown.spread,
            work: shown.work,
            interval: shown.interval,
            gain: if gain < 1.0 { (gain * (1.0 + noise)).min(1.0) } else { gain },
            density: self.in_force.choice.density,
            warming: false,
            echo: shown.echo,
        });
        Ok(())
    }

    fn decided(&mut self, decision: Decision, recorder: &mut Recorder) {
        self.next.choice = self.controller.choice().clone();
        self.delay += SEARCH;
        recorder.decided(decision);
    }
}
