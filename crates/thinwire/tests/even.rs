//! A group over an engine of equal sizes: threads, whose collectives are made to be so.

mod support;

use support::{METHODS, check_full_density, check_method, check_weighted_mean};
use thinwire::Result;
use thinwire::group::{Algorithm, Even, EvenGroup, Gathered, Group, Local, Mark, SharedGroup, Sum};

/// A group of threads that refuses what torch.distributed would refuse.
struct Threads(Local);

impl Even for Threads {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn all_reduce(&mut self, values: Sum<'_>) -> Result<()> {
        self.0.all_reduce(values, Algorithm::Ring)
    }

    fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let mut gathered = Gathered::default();
        self.0.all_gather(mine, usize::MAX, Algorithm::Ring, &mut gathered)?;
        assert!(gathered.iter().all(|message| message.len() == mine.len()), "slots of unlike sizes");
        all.copy_from_slice(&gathered.iter().collect::<Vec<_>>().concat());
        Ok(())
    }

    fn all_to_all(&mut self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let mut gathered = Gathered::default();
        self.0.all_gather(mine, usize::MAX, Algorithm::Ring, &mut gathered)?;
        let (rank, part) = (self.rank(), mine.len() / self.size());
        let parts: Vec<&[u8]> = gathered.iter().map(|message| &message[rank * part..][..part]).collect();
        all.copy_from_slice(&parts.concat());
        Ok(())
    }

    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<()> {
        let mut bytes = message.to_vec();
        self.0.broadcast(root, &mut bytes, usize::MAX, Algorithm::Tree)?;
        assert_eq!(bytes.len(), message.len(), "slots of unlike sizes");
        message.copy_from_slice(&bytes);
        Ok(())
    }

    fn abandon(&mut self, reason: &str) {
        self.0.abandon(reason);
    }
}

fn run<T: Send>(size: usize, work: impl Fn(EvenGroup<Threads>) -> T + Sync) -> Vec<T> {
    Local::run(size, |group| work(EvenGroup::new(Threads(group))))
}

#[test]
fn messages_of_any_length_reach_everybody_step_after_step() {
    // Longer and shorter than what the slots have learned, and empty ones among them.
    let lengths = [0, 1, 216, 217, 5000, 5100, 90_000, 17, 0, 3];
    for size in [1, 2, 3, 5] {
        run(size, |mut group| {
            let (rank, mut gathered) = (group.rank(), Gathered::default());
            let message =
                |rank: usize, round: usize| vec![(rank + round) as u8; lengths[(round + rank) % 10]];
            for round in 0..20 {
                group.mark(Mark { step: round as u64, plan: 1, bucket: (round % 2) as u32 });
                group.all_gather(&message(rank, round), 90_000, Algorithm::Ring, &mut gathered).unwrap();
                assert!((0..size).all(|rank| gathered.of(rank) == message(rank, round)));
                let (root, mut mine) = (round % size, message(rank, round));
                group.broadcast(root, &mut mine, 90_000, Algorithm::Tree).unwrap();
                assert_eq!(mine, message(root, round));
                group.barrier().unwrap();
            }
        });
    }
}

#[test]
fn in_the_steady_state_one_round_is_enough() {
    let (size, length) = (4, 10_000);
    run(size, |mut group| {
        let mut gathered = Gathered::default();
        group.mark(Mark { step: 0, plan: 1, bucket: 0 });
        for round in 0..3 {
            let before = group.traffic();
            let mine = vec![1; length + 50 * round];
            group.all_gather(&mine, 2 * length, Algorithm::Ring, &mut gathered).unwrap();
            let sent = (group.traffic() - before).sent as usize;
            assert!(round == 0 || sent < (size - 1) * (length + length / 30), "round {round}: {sent}");
        }
    });
}

#[test]
fn ranks_that_are_elsewhere_get_an_error_with_both_values() {
    let errors = run(3, |mut group| {
        group.mark(Mark { step: if group.rank() == 1 { 8 } else { 7 }, plan: 1, bucket: 0 });
        let mut gathered = Gathered::default();
        let first = group.all_gather(b"x", 10, Algorithm::Ring, &mut gathered).unwrap_err();
        let second = group.barrier().unwrap_err();
        (first.to_string(), second.to_string())
    });
    // Whoever is late hears that another rank gave up, with the same words.
    assert!(errors.iter().all(|(first, _)| first.contains("the step is")), "{errors:?}");
    assert!(errors.iter().all(|(first, _)| first.contains('7') && first.contains('8')), "{errors:?}");
    assert!(errors.iter().all(|(_, second)| second.contains("given up")), "{errors:?}");
}

#[test]
fn a_message_beyond_the_limit_is_refused() {
    let errors = run(2, |mut group| {
        let mine = vec![0; 100 * (1 + group.rank())];
        group.all_gather(&mine, 150, Algorithm::Ring, &mut Gathered::default()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("200") && error.contains("at most 150")), "{errors:?}");
}

#[test]
fn every_method_keeps_the_invariants() {
    for size in [1, 2, 3, 5] {
        for (elements, steps) in [(1, 2), (2, 2), (1000, 4), (100_003, 2)] {
            run(size, |group| {
                let group = SharedGroup::new(group);
                METHODS
                    .iter()
                    .for_each(|&(method, kind)| check_method(&group, method, kind, elements, steps));
                check_full_density(&group, elements);
            });
        }
        run(size, |group| check_weighted_mean(&SharedGroup::new(group)));
    }
}

/// A quantised sum is made by the owner of a shard in the order of the ranks, whatever carries the bytes.
#[test]
fn a_quantised_step_has_the_same_bits_as_over_streams() {
    let layout = support::layout(70_000);
    let steps = |group: SharedGroup| {
        let rank = group.rank() as u64;
        let mut synchronizer =
            thinwire::Synchronizer::new(group, "quantized:bits=3", layout.clone()).unwrap();
        let mut all = Vec::new();
        for step in 0..3 {
            let of = |bucket: &thinwire::Bucket| support::noise(bucket.len(), 10 * step + rank);
            let mut means: Vec<Vec<f32>> = layout.buckets().iter().map(of).collect();
            synchronizer.step(&mut means, thinwire::synchronizer::NO_WEIGHTS).unwrap();
            all.push(means);
        }
        (all, synchronizer.save().unwrap().residual)
    };
    for size in [2, 3, 5] {
        let streams = Local::run(size, |group| steps(SharedGroup::new(group)));
        let slots = run(size, |group| steps(SharedGroup::new(group)));
        assert!(streams == slots, "{size} ranks");
    }
}
