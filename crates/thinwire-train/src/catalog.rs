//! Things chosen by name with parameters, such as `cnn:width=32`: models, data sets, optimisers.

use thinwire::method::{Parameter, Parameters, split_spec};

use crate::{Error, Result};

/// One entry of a catalog.
#[derive(Debug)]
pub struct Choice<Build: 'static> {
    /// The name it is asked for by.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// How it is built.
    pub build: Build,
}

/// The entry that `spec` names, and its parameters. `what` is what the entries are: "model", say.
pub fn find<Build>(
    what: &'static str,
    catalog: &'static [Choice<Build>],
    spec: &str,
) -> Result<(&'static Choice<Build>, Parameters)> {
    let (name, parameters) = split_spec(spec);
    let choice = catalog.iter().find(|choice| choice.name == name).ok_or_else(|| Error::Unknown {
        what,
        name: name.to_owned(),
        known: catalog.iter().map(|choice| choice.name).collect::<Vec<_>>().join(", "),
    })?;
    Ok((choice, Parameters::parse(choice.name, &[choice.parameters], parameters)?))
}
