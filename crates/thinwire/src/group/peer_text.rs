//! Text that another rank sent, made safe to print.
//!
//! It ends up in errors and logs, so on a terminal. Control characters (escape sequences, carriage returns) and
//! characters that reorder or hide text could make a terminal show something else than what was sent. Line breaks and
//! tabs become spaces, all others U+FFFD, the replacement character. Every decoder of a peer's text uses this
//! function, so that no text with such a character gets any further.

/// Decodes `bytes`, text that another rank has sent, so that it is safe to print.
///
/// Line breaks and tabs become spaces. Bytes that are not UTF-8, control characters (such as escape sequences) and the
/// invisible characters that reorder or hide text become U+FFFD.
///
/// ```
/// assert_eq!(thinwire::group::peer_text(b"no\nroom\x1b[2J"), "no room\u{fffd}[2J");
/// ```
#[must_use]
pub fn peer_text(bytes: &[u8]) -> String {
    let printable = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if is_unsafe(c) => '\u{fffd}',
        c => c,
    };
    String::from_utf8_lossy(bytes).chars().map(printable).collect()
}

/// Control characters, and the invisible ones of bidirectional text and of line breaking.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_replaced() {
        for sent in ["\x1b[2J", "\x1b]0;title\x07", "\u{9b}31m", "a\rb", "a\nb", "\u{202e}cba", "\u{2066}a"] {
            let text = peer_text(sent.as_bytes());
            assert!(!text.chars().any(|c| c.is_control() || is_unsafe(c)), "{text:?}");
            assert_eq!(text.chars().count(), sent.chars().count());
        }
        assert_eq!(peer_text("rank 2: Größe 3 €, 梯度".as_bytes()), "rank 2: Größe 3 €, 梯度");
        assert_eq!(peer_text(b"a\xffb"), "a\u{fffd}b");
    }
}
