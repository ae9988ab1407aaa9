//! Commands that run on several ranks: where the ranks are, and how this process becomes one of them.

pub mod failure;
pub mod processes;
pub mod signals;
pub mod start;
pub mod supervise;

use anyhow::{Context, Result, ensure};
use thinwire::group::{Group, Local, SharedGroup, Tcp};

use start::Settings;

/// Where the ranks are.
#[derive(Debug, Clone, clap::Args)]
// A group would have the name of the one it becomes a part of, and clap panics.
#[group(skip)]
pub struct Arguments {
    /// How many ranks to start on this machine; not needed where RANK and WORLD_SIZE or mpirun say so
    #[arg(short = 'n', long, default_value_t = 4)]
    ranks: usize,
    /// What connects them
    #[arg(long, value_enum, default_value_t = Backend::Tcp)]
    backend: Backend,
    #[command(flatten)]
    settings: Settings,
    /// What the first two are called, for messages.
    #[arg(skip)]
    names: Names,
}

/// What the options for the number of ranks and for the back-end are called.
#[derive(Debug, Clone, Copy)]
struct Names([&'static str; 2]);

impl Default for Names {
    fn default() -> Self {
        Names(["--ranks", "--backend"])
    }
}

/// What connects the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// Processes, connected by TCP
    Tcp,
    /// Threads of one process
    Local,
    /// Processes started by mpirun
    Mpi,
}

impl Backend {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Tcp => "tcp",
            Backend::Local => "local",
            Backend::Mpi => "mpi",
        }
    }
}

impl Arguments {
    /// The same from options that have other names: `names` are those of the number of ranks and of the back-end.
    pub fn named(names: [&'static str; 2], ranks: usize, backend: Backend, settings: Settings) -> Arguments {
        Arguments { ranks, backend, settings, names: Names(names) }
    }

    /// How many ranks this process would start.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The back-end.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Whether this process is to start the ranks, and is none itself.
    pub fn starts_processes(&self) -> bool {
        self.backend == Backend::Tcp && std::env::var_os("RANK").is_none()
    }

    /// The emulated link, as text.
    pub fn link(&self) -> Option<String> {
        let link = || self.settings.link.clone().or_else(|| std::env::var("THINWIRE_LINK").ok());
        if self.backend == Backend::Tcp { link() } else { None }
    }

    /// Runs `work` on every rank; what rank 0 returns is printed by `show`. Without ranks in the environment
    /// this process starts them, each with the arguments it was given itself.
    pub fn run<T: Send>(
        &self,
        work: impl Fn(SharedGroup) -> Result<T> + Sync,
        show: impl Fn(T) -> Result<()>,
    ) -> Result<()> {
        let Names([number, backend]) = self.names;
        ensure!((1..=1024).contains(&self.ranks), "{number} {}: give 1 to 1024", self.ranks);
        if let Some(link) = &self.settings.link {
            ensure!(self.backend == Backend::Tcp, "--link {link}: only {backend} tcp can imitate a link");
        }
        match self.backend {
            Backend::Local => {
                let deadline = self.settings.for_ranks(self.ranks)?.deadline;
                let results = Local::run(self.ranks, |mut group| {
                    group.set_deadline(deadline);
                    work(SharedGroup::new(group))
                });
                for (rank, result) in results.into_iter().enumerate() {
                    let value = result.with_context(|| format!("rank {rank}"))?;
                    if rank == 0 {
                        show(value)?;
                    }
                }
                Ok(())
            }
            Backend::Tcp if self.starts_processes() => {
                let program = std::env::current_exe().context("can't find this program's own file")?;
                let command = [program.into_os_string()].into_iter().chain(std::env::args_os().skip(1));
                start::start(self.ranks, &self.settings, command.collect())
            }
            Backend::Tcp => {
                let group = Tcp::join(&self.settings.of_this_rank()?)?;
                let first = group.rank() == 0;
                let value = work(SharedGroup::new(group))?;
                if first { show(value) } else { Ok(()) }
            }
            Backend::Mpi => {
                let group = join_mpi(&self.settings, backend)?;
                let first = group.rank() == 0;
                let value = work(group)?;
                if first { show(value) } else { Ok(()) }
            }
        }
    }
}

#[cfg(feature = "mpi")]
fn join_mpi(settings: &Settings, _option: &str) -> Result<SharedGroup> {
    let deadline = match settings.deadline {
        Some(seconds) => std::time::Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|deadline| !deadline.is_zero())
            .with_context(|| format!("--deadline {seconds}: give seconds above 0"))?,
        None => thinwire::group::DEADLINE,
    };
    Ok(SharedGroup::new(thinwire::group::Mpi::join(deadline)?))
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(_settings: &Settings, option: &str) -> Result<SharedGroup> {
    anyhow::bail!(
        "{option} mpi: this thinwire was built without MPI. Build it with `cargo build --release --features mpi` \
         (needs libopenmpi-dev and libclang-dev) and start it with mpirun"
    )
}
