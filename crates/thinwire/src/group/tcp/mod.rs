//! Ranks as processes, connected by TCP: nothing to install, and any network will do.
//!
//! [`rendezvous`] brings the ranks together, [`secure`] lets in only those who know the secret, [`wire`] moves the
//! bytes, and [`shaper`] imitates a slower network where one wants to know what it would be like.

mod bell;
mod callers;
mod connection;
mod hello;
mod introduction;
mod line;
mod link;
mod overseer;
mod pace;
mod reception;
mod rendezvous;
mod schedule;
mod seal;
mod secret;
mod secure;
mod settings;
mod shaper;
mod socket;
mod wire;

pub use link::Link;
pub use schedule::Schedule;
pub use secret::Secret;
pub use settings::TcpSettings;
pub use wire::TcpWire;

use super::Mesh;
use crate::{Error, Result};

/// A group whose ranks are processes, each connected to each by TCP.
///
/// ```no_run
/// use thinwire::group::{Algorithm, Group, Sum, Tcp};
///
/// // RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set by torchrun, or by hand.
/// let mut group = Tcp::from_environment()?;
/// let mut values = [group.rank() as f32, 1.0];
/// group.all_reduce(Sum::F32(&mut values), Algorithm::Ring)?;
/// # Ok::<(), thinwire::Error>(())
/// ```
pub type Tcp = Mesh<TcpWire>;

impl Tcp {
    /// Finds the other ranks; returns when all are connected. After `settings.deadline` it is an error that names
    /// those that are missing.
    pub fn join(settings: &TcpSettings) -> Result<Tcp> {
        settings.check()?;
        let peers = rendezvous::meet(settings)?;
        let wire = TcpWire::new(settings.rank, peers, settings.link.clone(), settings.deadline);
        let wire =
            wire.map_err(|error| Error::Rendezvous { rank: settings.rank, reason: error.to_string() })?;
        Ok(Mesh::over(wire, settings.deadline))
    }

    /// The same with [the settings of the environment](TcpSettings::from_environment).
    pub fn from_environment() -> Result<Tcp> {
        Tcp::join(&TcpSettings::from_environment()?)
    }
}

#[cfg(test)]
mod tests;
