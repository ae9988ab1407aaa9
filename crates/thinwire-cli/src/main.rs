//! The program `thinwire`.
fn main() {}
