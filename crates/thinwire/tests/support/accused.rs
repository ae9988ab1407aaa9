//! Whom an error of a rank blames.

use std::collections::BTreeSet;

/// The ranks that an error blames: those it names, but for the rank whose error it is, those that only pass it on, the
/// source of a collective, and what is appended about callers that were refused.
pub fn accused(error: &str) -> BTreeSet<usize> {
    let error = error.split(" refused, one of them from ").next().unwrap_or_default();
    let error = error.rsplit(" could not join the group: ").next().unwrap_or_default();
    let words: Vec<&str> = error.split_whitespace().collect();
    let mut ranks = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        let before = |count: usize| at.checked_sub(count).map_or("", |at| words[at]);
        let after = |count: usize| words.get(at + count).copied().unwrap_or("");
        let passes_on = before(1) == "says" || after(2) == "refused:" || after(4) == "because";
        let is_source = before(2) == "broadcast" && before(1) == "from";
        match *word {
            "rank" if !passes_on && !is_source => ranks.extend(number(after(1))),
            "ranks" => ranks.extend(list(&words[at + 1..])),
            _ => {}
        }
    }
    ranks
}

fn number(word: &str) -> Option<usize> {
    word.trim_end_matches([',', ':', ';', '.', ')']).parse().ok()
}

/// Numbers with commas between them.
fn list(words: &[&str]) -> Vec<usize> {
    let mut numbers = Vec::new();
    for word in words {
        numbers.extend(number(word));
        if !word.ends_with(',') {
            break;
        }
    }
    numbers
}

/// As a function, because not every program that uses this has a test harness.
pub fn check_accused() {
    for (error, ranks) in [
        ("rank 2 could not join the group: no word from rank 1 of 4 at 127.0.0.1:5 within 4 s", &[1][..]),
        ("rank 2 could not join the group: rank 0 refused: no word from ranks 1, 3 of 4", &[1, 3]),
        ("rank 1 could not join the group: no connection from rank 3 within 4 s, says rank 0", &[3]),
        ("rank 1 could not join the group: rank 0 at 127.0.0.1:7 could not be reached", &[0]),
        (
            "rank 0 could not join the group: no word from rank 1; 2 callers were refused, one of them from rank 7",
            &[1],
        ),
        ("step 5: lost rank 1 during ring broadcast from rank 2: it closed the connection", &[1]),
        ("step 5: rank 2 gave up because of rank 1: lost rank 1 during a barrier", &[1]),
        ("step 5: rank 2 gave up: no room", &[2]),
        ("step 5: no word from rank 2 during a barrier for 3 s", &[2]),
        ("nothing is said", &[]),
    ] {
        assert_eq!(accused(error), ranks.iter().copied().collect(), "{error}");
    }
}
