//! Whole trainings, and what must be equal in them: the weights of all workers, of all kinds of groups, of runs that
//! were stopped and went on, and of the same samples on fewer workers.

mod batches;
mod exploration;
mod failures;
#[path = "../../../thinwire/tests/support/port.rs"]
mod port;
mod replicas;
mod resume;
mod workers;
