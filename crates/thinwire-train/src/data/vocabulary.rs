//! Cutting text into tokens, and numbering them.

use std::collections::HashMap;
use std::hash::Hash;

/// The number of everything that has no number of its own.
pub(super) const UNKNOWN: i32 = 0;

/// Stands in text for a word left out, as in the corpora made for measuring language models; it gets the number
/// [`UNKNOWN`].
const UNKNOWN_WORD: &str = "<unk>";

/// The word that ends each line.
const END_OF_LINE: &str = "<eos>";

/// Cuts text into words. Words are separated by white space; each line ends with `<eos>`. A character that is
/// neither letter nor number is a word of its own, but an apostrophe between two letters is part of the word, and
/// `<unk>` and `<eos>` are single words.
pub(super) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for line in text.lines() {
        line.split_whitespace().for_each(|piece| cut(piece, &mut words));
        words.push(END_OF_LINE);
    }
    words
}

/// Cuts a text without white space.
fn cut<'a>(piece: &'a str, words: &mut Vec<&'a str>) {
    if piece == UNKNOWN_WORD || piece == END_OF_LINE {
        return words.push(piece);
    }
    let mut start = 0;
    let mut before = None;
    let mut characters = piece.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        let after = characters.peek().map(|&(_, next)| next);
        let apostrophe = matches!(character, '\'' | '\u{2019}')
            && before.is_some_and(char::is_alphabetic)
            && after.is_some_and(char::is_alphabetic);
        if !character.is_alphanumeric() && !apostrophe {
            if start < place {
                words.push(&piece[start..place]);
            }
            start = place + character.len_utf8();
            words.push(&piece[place..start]);
        }
        before = Some(character);
    }
    if start < piece.len() {
        words.push(&piece[start..]);
    }
}

/// The numbers of tokens: the most frequent first, from 1; 0 is [`UNKNOWN`].
#[derive(Debug)]
pub(super) struct Vocabulary<Token> {
    numbers: HashMap<Token, i32>,
}

impl<Token: Copy + Eq + Hash + Ord> Vocabulary<Token> {
    /// The `most` - 1 most frequent tokens of the training text, so that there are `most` numbers at most.
    pub(super) fn new(training: &[Token], most: usize) -> Vocabulary<Token> {
        let mut counts = HashMap::<Token, usize>::new();
        training.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
        let mut tokens: Vec<(Token, usize)> = counts.into_iter().collect();
        // Equally frequent ones in their own order: the numbers are the same on every worker.
        tokens.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        tokens.truncate(most.saturating_sub(1));
        Vocabulary {
            numbers: tokens.into_iter().zip(1..).map(|((token, _), number)| (token, number)).collect(),
        }
    }

    /// How many different numbers there are, [`UNKNOWN`] included.
    pub(super) fn len(&self) -> usize {
        self.numbers.len() + 1
    }

    /// The number of each token.
    pub(super) fn numbers(&self, tokens: &[Token]) -> Vec<i32> {
        tokens.iter().map(|token| self.numbers.get(token).copied().unwrap_or(UNKNOWN)).collect()
    }
}

/// A vocabulary of words: `<unk>` in the text has the number [`UNKNOWN`], and is not counted as a word.
pub(super) fn of_words<'a>(training: &[&'a str], most: usize) -> Vocabulary<&'a str> {
    let known: Vec<&str> = training.iter().copied().filter(|&word| word != UNKNOWN_WORD).collect();
    Vocabulary::new(&known, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_punctuation_and_lines_are_tokens() {
        assert_eq!(
            words("In the beginning, God's \"light\"--2nd\tday.\r\n\n'twas <unk> 3.5 é!"),
            [
                "In",
                "the",
                "beginning",
                ",",
                "God's",
                "\"",
                "light",
                "\"",
                "-",
                "-",
                "2nd",
                "day",
                ".",
                "<eos>",
                "<eos>",
                "'",
                "twas",
                "<unk>",
                "3",
                ".",
                "5",
                "é",
                "!",
                "<eos>"
            ]
        );
        assert!(words("").is_empty());
        assert_eq!(words("a\n"), ["a", "<eos>"]);
    }

    #[test]
    fn nothing_but_white_space_is_lost() {
        let text = "“Don’t” <a> x_y; naïve…—\u{1F600}z' 'q' o'' <<unk>>\nnext";
        let kept: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        assert_eq!(words(text).concat().replace("<eos>", ""), kept);
    }

    #[test]
    fn known_tokens_come_back_and_the_rest_is_unknown() {
        let training: Vec<char> = "abracadabra".chars().collect();
        let vocabulary = Vocabulary::new(&training, 100);
        assert_eq!(vocabulary.len(), 6);
        let back: HashMap<i32, char> = vocabulary.numbers.iter().map(|(&c, &number)| (number, c)).collect();
        let text: String = vocabulary.numbers(&training).iter().map(|number| back[number]).collect();
        assert_eq!(text, "abracadabra");
        assert_eq!(vocabulary.numbers(&['a', 'b', 'r', 'c', 'd', 'z']), [1, 2, 3, 4, 5, UNKNOWN]);
    }

    #[test]
    fn the_most_frequent_words_are_kept() {
        let training = words("b a b <unk> c a b <unk> <unk> <unk>");
        let vocabulary = of_words(&training, 3);
        assert_eq!(vocabulary.len(), 3);
        assert_eq!(vocabulary.numbers(&["b", "a", "c", "<eos>", "<unk>"]), [1, 2, 0, 0, 0]);
        assert_eq!(of_words(&training, 100).len(), 5, "a, b, c, <eos> and <unk>");
    }
}
