//! Which coordinates travel.
mod survey;
pub use survey::Survey;
