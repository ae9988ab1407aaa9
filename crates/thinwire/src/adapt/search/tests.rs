//! NSGA-II against the grid, against pymoo and against another program, and what holds for every run.

use optimizer::multi_objective::MultiObjectiveStudy;
use optimizer::parameter::{FloatParam, Parameter};
use optimizer::sampler::nsga2::Nsga2Sampler;
use optimizer::{Direction, Trial};
use proptest::prelude::*;

use super::nsga2::{Settings, search};
use super::*;

struct Problem {
    name: &'static str,
    bounds: [f64; 2],
    objectives: fn(f64) -> [f64; 2],
    /// A point that the front dominates, from which its hypervolume is measured.
    reference: [f64; 2],
    /// pymoo's pick by the weights 0.6 and 0.4, and its hypervolume.
    pymoo: (f64, f64),
}

/// The last column is from pymoo 0.6.2: `minimize(problem, NSGA2(pop_size=40, n_offsprings=10,
/// sampling=FloatRandomSampling(), crossover=SBX(prob=0.9, eta=15), mutation=PM(eta=20),
/// eliminate_duplicates=True), ("n_gen", 40), seed=1)`; the pick is the argmin of `ASF().do(n, 1 / [0.6, 0.4])` with
/// n the front between its least and greatest values, the volume that of `HV(ref_point=reference)`. With seeds 1 to 5
/// its picks scatter over 0.0156 to 0.0179, 0.866 to 0.900 and 1.823 to 1.862.
const PROBLEMS: [Problem; 3] = [
    Problem {
        name: "density",
        bounds: [0.001, 0.1],
        objectives: |c| [1e-3 + 2.0 * c, c.powf(-0.3)],
        reference: [0.201, 8.0],
        pymoo: (0.017130, 1.026170),
    },
    Problem {
        name: "Schaffer 1",
        bounds: [-10.0, 10.0],
        objectives: |x| [x * x, (x - 2.0) * (x - 2.0)],
        reference: [4.0, 4.0],
        pymoo: (0.885101, 13.172807),
    },
    // Two parts, 1 to 2 and 4 to 5.
    Problem {
        name: "Schaffer 2",
        bounds: [-5.0, 10.0],
        objectives: |x| {
            let first = match x {
                ..=1.0 => -x,
                ..=3.0 => x - 2.0,
                ..=4.0 => 4.0 - x,
                _ => x - 4.0,
            };
            [first, (x - 5.0) * (x - 5.0)]
        },
        reference: [1.0, 16.0],
        pymoo: (1.832212, 19.077032),
    },
];

/// ZDT3 without its further variables: five parts.
fn zdt3(x: f64) -> [f64; 2] {
    [x, 1.0 - x.sqrt() - x * (10.0 * std::f64::consts::PI * x).sin()]
}

fn interval(bounds: [f64; 2]) -> Interval {
    Interval::new(bounds[0], bounds[1], Scale::Linear).unwrap()
}

/// The area between the front and the reference.
fn volume(front: &[Point<2>], reference: [f64; 2]) -> f64 {
    let mut steps: Vec<_> = front.iter().map(|point| point.objectives).collect();
    steps.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let (mut volume, mut level) = (0.0, reference[1]);
    for [first, second] in steps.into_iter().filter(|step| step[0] < reference[0]) {
        volume += (reference[0] - first) * (level - second).max(0.0);
        level = level.min(second);
    }
    volume
}

fn paper_pick(front: &[Point<2>]) -> f64 {
    pick::asf(front, pick::PAPER_WEIGHTS).unwrap().x
}

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() < tolerance
}

/// Forty points cannot have quite the volume of two hundred.
#[test]
fn fronts_and_picks_are_those_of_pymoo_and_of_the_grid() {
    for Problem { name, bounds, objectives, reference, pymoo } in PROBLEMS {
        let oracle = grid(interval(bounds), 2000, objectives);
        for seed in 1..=5 {
            let front = search(interval(bounds), Settings { seed, ..Settings::default() }, objectives);
            let (pick, volume, most) =
                (paper_pick(&front), volume(&front, reference), volume(&oracle, reference));
            assert_eq!(front.len(), 40, "{name}");
            assert!(close(volume, pymoo.1, 0.01), "{name}: {volume}");
            assert!(volume < most && close(volume, most, 0.025), "{name}: {volume} {most}");
            assert!(close(pick, pymoo.0, 0.15), "{name}: {pick}");
            assert!(close(pick, paper_pick(&oracle), 0.1), "{name}: {pick}");

            let all = Settings { archive: true, seed, ..Settings::default() };
            let front = search(interval(bounds), all, objectives);
            let (pick, volume) = (paper_pick(&front), self::volume(&front, reference));
            assert!(close(volume, most, 0.01), "{name}: {volume} {most}");
            assert!(close(pick, paper_pick(&oracle), 0.05), "{name}: {pick}");
        }
    }
}

/// The search of a crate, whose front is that of all points it tried.
#[test]
fn fronts_and_picks_are_those_of_another_program() {
    for Problem { name, bounds, objectives, reference, .. } in PROBLEMS {
        let sampler = Nsga2Sampler::builder().population_size(40).crossover_eta(15.0).seed(1).build();
        let study = MultiObjectiveStudy::with_sampler(vec![Direction::Minimize; 2], sampler);
        let x = FloatParam::new(bounds[0], bounds[1]);
        let tried = |trial: &mut Trial| Ok::<_, optimizer::Error>(objectives(x.suggest(trial)?).to_vec());
        study.optimize(430, tried).unwrap();
        let theirs: Vec<_> = study.pareto_front().iter().map(|trial| trial.get(&x).unwrap()).collect();
        let theirs: Vec<_> = theirs.into_iter().map(|x| Point { x, objectives: objectives(x) }).collect();

        let all = Settings { archive: true, ..Settings::default() };
        let ours = search(interval(bounds), all, objectives);
        assert!(volume(&ours, reference) > 0.99 * volume(&theirs, reference), "{name}");
        let values: Vec<_> = theirs.iter().map(|point| point.objectives.to_vec()).collect();
        let expected = optimizer::pareto::hypervolume(&values, &reference, &[Direction::Minimize; 2]);
        assert!(close(volume(&theirs, reference), expected, 1e-9), "{name}");
        assert!(close(paper_pick(&ours), paper_pick(&theirs), 0.1), "{name}");
    }
}

/// What [`Settings::archive`] says of the usual run.
#[test]
fn picks_of_all_that_was_tried_are_nearer_than_those_of_the_last_population() {
    let ratios = Interval::new(0.001, 0.1, Scale::Logarithmic).unwrap();
    let (mut last, mut all) = (Vec::new(), Vec::new());
    for exponent in 1..20 {
        let objectives = |c: f64| [c, c.powf(-0.05 * f64::from(exponent))];
        let oracle = paper_pick(&grid(ratios, grid::POINTS, objectives));
        for (interval, seed) in [(ratios, 1), (ratios, 2), (Interval::default(), 1), (Interval::default(), 2)]
        {
            let apart = |archive| {
                let front = search(interval, Settings { archive, seed, ..Settings::default() }, objectives);
                (paper_pick(&front) / oracle).ln().abs()
            };
            last.push(apart(false));
            all.push(apart(true));
        }
    }
    for (apart, half, nine_in_ten) in [(&mut last, 0.07, 0.15), (&mut all, 0.015, 0.03)] {
        apart.sort_by(f64::total_cmp);
        assert!(apart[38] < half && apart[68] < nine_in_ten, "{apart:?}");
    }
}

#[test]
fn every_part_of_a_front_is_found() {
    let front = search(interval([0.0, 1.0]), Settings::default(), zdt3);
    let oracle = grid(interval([0.0, 1.0]), 2000, zdt3);
    let parts = |front: &[Point<2>]| front.windows(2).filter(|pair| pair[1].x - pair[0].x > 0.08).count() + 1;
    assert_eq!((parts(&front), parts(&oracle)), (5, 5));
    assert!(close(volume(&front, [1.0; 2]), volume(&oracle, [1.0; 2]), 0.01));
}

#[test]
fn a_single_objective_ends_at_its_least_value() {
    let front = search(interval([-3.0, 5.0]), Settings::default(), |x| [(x - 1.0) * (x - 1.0)]);
    assert!(front.len() == 1 && (front[0].x - 1.0).abs() < 0.01, "{front:?}");
}

#[test]
fn three_objectives() {
    let front = search(interval([-10.0, 10.0]), Settings::default(), |x| {
        [x * x, (x - 1.0).powi(2), (x - 2.0).powi(2)]
    });
    assert_eq!(front.len(), 40);
    assert!(front.iter().all(|point| (-0.1..2.1).contains(&point.x)), "{front:?}");
}

#[test]
fn settings_at_their_ends() {
    let objectives = |x: f64| [x, -x];
    let run = |settings| search(interval([0.0, 1.0]), settings, objectives).len();
    assert_eq!(run(Settings { population: 0, ..Settings::default() }), 0);
    assert_eq!(run(Settings { population: 1, ..Settings::default() }), 1);
    assert_eq!(run(Settings { generations: 0, ..Settings::default() }), 40);
    assert_eq!(run(Settings { offspring: 0, ..Settings::default() }), 40);
    assert_eq!(run(Settings { crossover: 0.0, mutation: 0.0, ..Settings::default() }), 40);
    for eta in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(run(Settings { crossover_eta: eta, mutation_eta: eta, ..Settings::default() }), 40);
    }
    // All values are duplicates of one another: the first stays alone.
    assert_eq!(run(Settings { duplicate: 1.0, ..Settings::default() }), 1);
    assert_eq!(search(interval([2.0, 2.0]), Settings::default(), objectives).len(), 1);
    assert_eq!(grid(interval([2.0, 2.0]), 3, objectives).len(), 3);
}

#[test]
fn as_many_evaluations_as_in_pymoo() {
    let mut evaluations = 0;
    search(Interval::default(), Settings::default(), |x| {
        evaluations += 1;
        [x, -x]
    });
    assert_eq!(evaluations, 430);
}

/// An objective that is a number in some of five bands of the interval, and something else in the others.
fn broken(bands: [usize; 5], x: f64) -> [f64; 2] {
    let band = bands[((x - 0.001) / 0.099 * 5.0).clamp(0.0, 4.0) as usize];
    let other = [x, x, f64::NAN, f64::INFINITY, f64::NEG_INFINITY][band];
    [other, -x]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Time is affine in the density and the gain a power of it. The bounds are what no run exceeds, about twice the
    /// worst of eleven thousand; [`Settings::archive`] has the usual figures.
    #[test]
    fn densities_agree_with_the_grid(
        alpha in 0.0..0.1f64, beta in 1e-3..1e3f64, exponent in 0.05..0.95f64, seed in any::<u64>(),
        log in any::<bool>(),
    ) {
        let objectives = |c: f64| [alpha + beta * c, c.powf(-exponent)];
        let ratios = Interval::new(0.001, 0.1, Scale::Logarithmic).unwrap();
        let interval = if log { ratios } else { Interval::default() };
        let oracle = grid(ratios, grid::POINTS, objectives);
        let reference = [alpha + 0.1 * beta, objectives(0.001)[1]];
        let most = volume(&oracle, reference);
        let apart = |front: &[Point<2>]| {
            let knees = pick::knee(front).unwrap().x / pick::knee(&oracle).unwrap().x;
            ((paper_pick(front) / paper_pick(&oracle)).ln().abs(), knees.ln().abs())
        };

        let front = search(interval, Settings { archive: true, seed, ..Settings::default() }, objectives);
        let (picks, knees) = apart(&front);
        prop_assert!(picks < 0.15 && knees < 0.15, "all tried: {} {}", picks, knees);
        prop_assert!(close(volume(&front, reference), most, 0.01));

        let front = search(interval, Settings { seed, ..Settings::default() }, objectives);
        let (picks, knees) = apart(&front);
        prop_assert!(picks < 0.6 && knees < 0.6, "last population: {} {}", picks, knees);
        prop_assert!(close(volume(&front, reference), most, 0.03));
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_no_value_lies_outside(
        low in 1e-6..1.0f64, width in 0.0..10.0f64, seed in any::<u64>(), log in any::<bool>(), archive in any::<bool>(),
        eta in 0.0..50.0f64,
    ) {
        let scale = if log { Scale::Logarithmic } else { Scale::Linear };
        let interval = Interval::new(low, low + width, scale).unwrap();
        let settings = Settings { archive, seed, crossover_eta: eta, mutation_eta: eta, ..Settings::default() };
        let run = || {
            let mut inside = true;
            let front = search(interval, settings, |x| {
                inside &= (low..=low + width).contains(&x);
                [x, (x - low - 0.3 * width).abs()]
            });
            (front, inside)
        };
        let ((first, inside), (second, _)) = (run(), run());
        prop_assert!(inside);
        prop_assert!(first.is_sorted_by(|a, b| a.x < b.x));
        let bits = |front: &[Point<2>]| front.iter().map(|point| point.x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&first), bits(&second));
    }

    #[test]
    fn what_is_not_finite_is_never_part_of_a_front(
        bands in prop::array::uniform5(0usize..5), seed in any::<u64>(), archive in any::<bool>(),
    ) {
        let objectives = |x| broken(bands, x);
        let found = search(Interval::default(), Settings { archive, seed, ..Settings::default() }, objectives);
        let oracle = grid(Interval::default(), grid::POINTS, objectives);
        prop_assert!(found.iter().chain(&oracle).all(Point::is_finite));
        prop_assert_eq!(found.is_empty(), oracle.is_empty());
        prop_assert_eq!(pick::asf(&found, pick::PAPER_WEIGHTS).is_none(), oracle.is_empty());
    }
}
