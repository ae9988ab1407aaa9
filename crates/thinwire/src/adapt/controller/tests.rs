//! Steps as they would be on a network, with noise and changes.

use super::*;
use crate::select::mix;

/// With sparse methods among the candidates.
const SPARSE: &str = "auto:methods=dense|dense:values=bf16|topk|ar-topk";

/// Steps as they would be on some network, of a gradient with the default gains.
struct World {
    controller: Controller,
    network: Network,
    in_force: Choice,
    step: u64,
    compute: f64,
    noise: f64,
    /// How much longer everything takes on the network than the model says.
    slower: f64,
    /// A density that a warm-up holds.
    warm: f64,
    /// The gain of steps, where it is not the default one.
    gain: Option<f64>,
    decisions: Vec<Decision>,
    probes: usize,
    listening: bool,
    explorations: usize,
    exploring: usize,
}

impl World {
    fn new(method: &str, ranks: usize, elements: &[usize], link: &str, compute: f64) -> World {
        let limits = crate::method::parse(method).unwrap().limits.unwrap();
        let network: Network = link.parse().unwrap();
        let mut controller = Controller::new(&limits, elements, ranks, network).unwrap();
        let first = controller.start(0, 0.0);
        World {
            in_force: controller.choice().clone(),
            controller,
            network,
            step: 0,
            compute,
            noise: 0.0,
            slower: 1.0,
            warm: 0.0,
            gain: None,
            decisions: vec![first],
            probes: 0,
            listening: false,
            explorations: 0,
            exploring: 0,
        }
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.take();
        }
    }

    fn take(&mut self) {
        self.step += 1;
        let mut truth = self.controller.model.clone();
        truth.wire = truth.wire.moved(self.controller.network, self.network);
        let nothing = vec![Measured::default(); self.controller.ways.len()];
        let problem = Problem { model: &truth, measured: &nothing, ..self.controller.problem() };
        let density = self.in_force.density.max(self.warm);
        let price = problem.price_of(&self.in_force.ways, density);
        let noise = self.slower * (1.0 + self.noise * ((mix(self.step) % 2001) as f64 / 1000.0 - 1.0));
        let seen = Observation {
            step: self.step,
            number: self.in_force.number,
            sum: noise * price.sum,
            spread: noise * price.spread,
            work: price.work,
            interval: self.compute + price.work + noise * price.sync(),
            gain: self.gain.unwrap_or(Curve::default().at(density)),
            density,
            warming: density > self.in_force.density,
            echo: std::mem::take(&mut self.listening).then_some(noise * self.network.latency),
        };
        let before = self.controller.choice().clone();
        match self.controller.observe(&seen).unwrap() {
            Wish::Nothing => {}
            Wish::Probe => (self.probes, self.listening) = (self.probes + 1, true),
            Wish::Look => {
                let decision = self.controller.probed(self.step, self.network).unwrap();
                self.decisions.extend(decision);
            }
            Wish::Explore => (self.explorations, self.exploring) = (self.explorations + 1, EXPLORATION),
            Wish::Change(decision) => self.decisions.push(*decision),
        }
        if self.exploring > 0 {
            self.exploring -= 1;
            if self.exploring == 0 {
                let decision = self.controller.explored(self.step, Curve::default()).unwrap();
                self.decisions.extend(decision);
            }
        }
        // An order takes a step to reach everybody.
        self.in_force = before;
    }

    fn is_dense(&self) -> bool {
        self.in_force.ways.iter().all(|way| self.controller.ways[*way].is_dense())
    }

    fn changes(&self) -> usize {
        self.decisions.iter().filter(|decision| decision.changes).count()
    }
}

#[test]
fn a_fast_network_needs_nothing_and_asks_for_nothing() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "1000gbit,5us", 0.05);
    world.run(200);
    assert!(world.is_dense());
    assert_eq!((world.probes, world.explorations, world.changes()), (0, 0, 1));
}

#[test]
fn a_slow_one_is_compressed_for_and_explored_once() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(200);
    assert!(!world.is_dense());
    assert_eq!(world.explorations, 1);
    assert!(world.in_force.density > 0.001 && world.in_force.density < 0.1, "{:?}", world.in_force);
    let last = world.decisions.last().unwrap();
    assert!(last.saves().unwrap() > 0.5 && last.second.is_some() && last.gains.is_some(), "{last}");
}

#[test]
fn a_change_of_two_or_more_is_answered_within_twenty_steps() {
    for (from, to) in [
        ("25gbit,1ms", "1gbit,1ms"),
        ("1gbit,1ms", "1gbit,50ms"),
        ("1gbit,50ms", "25gbit,50ms"),
        ("1gbit,1ms", "500mbit,1ms"),
        ("100mbit,1ms", "200mbit,1ms"),
        ("10mbit,20ms", "10gbit,1ms"),
    ] {
        for ranks in [2, 4, 8, 64] {
            let mut world = World::new(SPARSE, ranks, &[25_000_000], from, 0.1);
            world.noise = 0.1;
            world.run(300);
            let known = world.decisions.len();
            world.network = to.parse().unwrap();
            world.run(20);
            let found = world.controller.network();
            let price = |network| {
                let mut model = world.controller.model.clone();
                model.wire = super::super::price::Wire::uniform(network);
                Problem { model: &model, ..world.controller.problem() }
                    .price_of(&world.in_force.ways, world.in_force.density)
                    .sync()
            };
            // Where a step shows the change, it must have been seen.
            let ratio = price(to.parse().unwrap()) / price(from.parse().unwrap());
            if !(0.75..1.35).contains(&ratio) {
                assert!(world.decisions.len() > known, "{from} to {to}, {ranks}: {found:?}");
                let off = price(found) / price(to.parse().unwrap());
                assert!((0.6..1.6).contains(&off), "{from} to {to}, {ranks}: {off} {found:?}");
            }
        }
    }
}

#[test]
fn noise_of_a_tenth_changes_nothing() {
    for link in ["25gbit,1ms", "1gbit,1ms", "1gbit,50ms", "100mbit,5ms"] {
        for ranks in [2, 8, 64] {
            let mut world = World::new(SPARSE, ranks, &[5_000_000, 20_000_000, 300], link, 0.1);
            world.noise = 0.1;
            world.run(100);
            let settled = world.changes();
            world.run(3000);
            assert!(world.changes() <= settled + 1, "{link}, {ranks}: {:#?}", world.decisions);
            // A probe is one empty message.
            assert!(world.probes <= 15, "{link}, {ranks}: {} probes", world.probes);
        }
    }
}

#[test]
fn a_gain_that_falls_is_explored_again_but_not_all_the_time() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(200);
    assert_eq!(world.explorations, 1);
    // As if the gradients had changed: the same density sends less.
    let number = world.in_force.number;
    let seen = |step, gain| Observation {
        step,
        number,
        sum: 0.0,
        spread: f64::NAN,
        interval: 0.1,
        gain,
        density: 0.01,
        ..Observation::default()
    };
    let explores =
        |world: &mut World, step, gain| world.controller.observe(&seen(step, gain)).unwrap() == Wish::Explore;
    let asked = (200..400).filter(|step| explores(&mut world, *step, 0.05)).count();
    assert_eq!(asked, 1);
}

#[test]
fn other_buckets_are_chosen_for_anew() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(50);
    let decision = world.controller.relayout(50, &[600_000, 400_000]);
    assert!(decision.changes && decision.number > world.in_force.number);
    assert_eq!(world.controller.choice().ways.len(), 2);
}

#[test]
fn a_change_is_seen_however_much_slower_than_the_model_the_ways_are() {
    for slower in [1.5, 2.0, 2.5] {
        let mut world = World::new(SPARSE, 4, &[25_000_000], "1gbit,1ms", 0.1);
        (world.slower, world.noise) = (slower, 0.05);
        world.run(300);
        let before = world.controller.network();
        world.network = "500mbit,1ms".parse().unwrap();
        world.run(20);
        let after = world.controller.network();
        let ratio = after.seconds_per_byte / before.seconds_per_byte;
        assert!((1.5..2.7).contains(&ratio), "{slower}: {before:?}, {after:?}");
    }
}

#[test]
fn a_warm_up_changes_the_ways_and_not_the_density() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    for step in 0..100 {
        world.warm = 1.0 - 0.009 * f64::from(step);
        world.take();
        assert_eq!(world.explorations, 0);
    }
    world.warm = 0.0;
    world.run(50);
    let allowed = |decision: &Decision| decision.is_dense() || decision.density < 0.101;
    assert!(world.decisions.iter().all(allowed), "{:#?}", world.decisions);
    assert!(world.explorations == 1 && !world.is_dense());
    assert!(world.in_force.density < 0.1, "{:?}", world.in_force);
}

#[test]
fn low_precision_is_left_where_it_saves_nothing() {
    let mut world = World::new("auto:methods=dense|dense:values=bf16", 4, &[25_000_000], "1gbit,100us", 0.1);
    world.run(50);
    assert!(world.is_dense() && world.controller.ways[world.in_force.ways[0]].bits() == Some(16.0));
    world.network = "1000gbit,10us".parse().unwrap();
    world.run(50);
    assert!(world.controller.ways[world.in_force.ways[0]].bits() == Some(32.0), "{:#?}", world.decisions);
}

#[test]
fn where_nothing_may_be_sent_whole_decisions_can_be_read_again() {
    let world = World::new("auto:methods=topk|ar-topk", 4, &[1_000_000], "1gbit,1ms", 0.05);
    let first = &world.decisions[0];
    assert!(first.dense_seconds.is_none() && first.saves().is_none() && !first.to_string().contains("inf"));
    let read: Decision = serde_json::from_str(&serde_json::to_string(first).unwrap()).unwrap();
    assert_eq!(&read, first);
}

#[test]
fn the_default_candidates_send_everything_and_measure_no_gains() {
    for (link, bits) in [("1000gbit,5us", 32.0), ("100mbit,1ms", 4.25)] {
        let mut world = World::new("auto", 4, &[1_000_000, 5_000_000], link, 0.05);
        world.run(300);
        let chosen = |way: &usize| world.controller.ways[*way].bits();
        assert!(world.in_force.ways.iter().all(|way| chosen(way).is_some_and(|found| found == bits)));
        assert_eq!((world.explorations, world.in_force.density), (0, 1.0), "{link}");
        for decision in &world.decisions {
            assert!(decision.density == 1.0 && decision.gain == 1.0, "{decision}");
            assert!(!decision.to_string().contains("gain"), "{decision}");
        }
    }
}

#[test]
fn fewer_bits_are_taken_only_where_they_save_time() {
    // A step of a second, in which 8 bits save all there is to save.
    let mut world = World::new("auto", 4, &[1_000_000], "1gbit,1ms", 1.0);
    world.run(100);
    let bits = world.controller.ways[world.in_force.ways[0]].bits().unwrap();
    assert!((8.0..17.0).contains(&bits), "{:#?}", world.decisions);
}

#[test]
fn a_warm_up_without_sparse_candidates_is_none() {
    let mut world = World::new("auto:warmup=dense/5", 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.warm = 1.0;
    world.run(100);
    assert!(world.decisions.iter().all(|decision| decision.reason != Reason::Warmup));
}

/// The decisions that back off from a residual that runs away.
fn backed_off(world: &World) -> Vec<&Decision> {
    world.decisions.iter().filter(|decision| decision.reason == Reason::Residual).collect()
}

#[test]
fn a_residual_that_runs_away_raises_the_density_and_then_excludes_sparse_methods() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(200);
    let before = world.in_force.density;
    assert!(!world.is_dense() && backed_off(&world).is_empty());
    world.gain = Some(0.002);
    world.run(30);
    assert!((world.in_force.density - 0.1).abs() < 1e-6 && before < 0.05 && !world.is_dense());
    world.run(30);
    assert!(world.is_dense());
    let found = backed_off(&world);
    assert_eq!(found.len(), 2, "{:#?}", world.decisions);
    assert!(found.iter().all(|decision| decision.changes));
    let text = found[0].to_string();
    assert!(text.contains("runs away") && text.contains("0.200 %") && text.contains("1.000 %"), "{text}");
    let read: Decision = serde_json::from_str(&serde_json::to_string(found[0]).unwrap()).unwrap();
    assert_eq!(&read, found[0]);
    // It stays so, whatever the network and the gains do.
    world.gain = None;
    for link in ["10mbit,1ms", "25gbit,1ms", "100mbit,20ms"] {
        world.network = link.parse().unwrap();
        world.run(100);
        assert!(world.is_dense(), "{link}: {:#?}", world.decisions);
    }
    world.controller.relayout(world.step, &[600_000, 400_000]);
    assert!(world.controller.choice().ways.iter().all(|way| world.controller.ways[*way].is_dense()));
}

#[test]
fn a_raised_density_that_helps_stays() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(200);
    world.gain = Some(0.002);
    world.run(30);
    world.gain = None;
    world.run(1000);
    assert!(
        backed_off(&world).len() == 1 && (world.in_force.density - 0.1).abs() < 1e-6 && !world.is_dense()
    );
}

#[test]
fn a_few_steps_that_send_little_are_no_reason() {
    let mut world = World::new(SPARSE, 4, &[1_000_000], "100mbit,1ms", 0.05);
    world.run(200);
    for _ in 0..20 {
        world.gain = Some(0.002);
        world.run(15);
        world.gain = None;
        world.run(1);
    }
    assert!(backed_off(&world).is_empty(), "{:#?}", world.decisions);
}

#[test]
fn without_other_candidates_it_is_told_once() {
    let mut world = World::new(
        "auto:methods=topk,max_density=0.01,min_density=0.01",
        4,
        &[1_000_000],
        "100mbit,1ms",
        0.05,
    );
    world.gain = Some(0.002);
    world.run(500);
    let found = backed_off(&world);
    assert!(found.len() == 1 && !found[0].changes, "{:#?}", world.decisions);
}
