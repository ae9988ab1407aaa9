//! What a step of thinwire itself takes, by any method and any algorithm, before it is tried.
//!
//! [`cost`](super::cost) has the papers' formulas for the papers' collectives. Here are the same two numbers of a
//! network, latency and seconds for a byte, under thinwire's own collectives, with the time that ranks work at both
//! ends:
//!
//! | file | what |
//! |---|---|
//! | `collective.rs` | [`Collective`]: hops and bytes of each |
//! | `way.rs` | [`Way`]: a method with its algorithms, and the collectives it needs |
//! | `wire.rs` | [`Wire`]: how fast bytes travel in each collective |
//! | `labour.rs` | [`Workshop`]: how long ranks work on an element |
//! | `model.rs` | [`Model`]: all of it together |
//!
//! ```
//! use thinwire::adapt::price::{Model, Way};
//!
//! // ResNet-50 on four ranks at 1 Gbit/s: all of it, or a hundredth by everybody's own choice.
//! let model = Model::new(4, "1gbit,100us".parse()?);
//! let dense = model.price(&Way::all("dense")?[0], 25_557_032.0, 1.0);
//! let topk = model.price(&Way::all("topk")?[0], 25_557_032.0, 0.01);
//! assert!((dense.seconds() - 1.24).abs() < 0.02);
//! assert!(dense.seconds() / topk.seconds() > 10.0);
//! # Ok::<(), thinwire::Error>(())
//! ```

mod collective;
mod labour;
mod model;
mod way;
mod wire;

pub use collective::Collective;
pub use labour::{Labour, Workshop};
pub use model::{Model, Price};
pub use way::{Leg, Way, index_bits};
pub use wire::{Sample, Wire};
