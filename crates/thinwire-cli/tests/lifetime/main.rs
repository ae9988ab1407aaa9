//! Ranks end with their launcher, whoever ends it and in whatever way. Looks into `/proc`.
#![cfg(target_os = "linux")]

#[path = "../../../thinwire/tests/support/accused.rs"]
mod accused;
#[path = "../common/mod.rs"]
mod common;
mod kills;
mod launch;
mod marked;
mod terminal;
