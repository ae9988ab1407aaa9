//! What there is to train, to train on, and to train with.

use thinwire_train::catalog::Choice;
use thinwire_train::data::DATA;
use thinwire_train::model::MODELS;
use thinwire_train::optimizer::OPTIMIZERS;

use crate::output;

/// Three tables.
pub fn list() -> String {
    format!("Models\n{}\nData sets\n{}\nOptimisers\n{}", table(MODELS), table(DATA), table(OPTIMIZERS))
}

fn table<Build>(choices: &[Choice<Build>]) -> String {
    let mut rows = Vec::new();
    for choice in choices {
        rows.push(vec![choice.name.to_owned(), String::new(), choice.summary.to_owned()]);
        for parameter in choice.parameters {
            let default = if parameter.default.is_empty() { "(none)" } else { parameter.default };
            let given = format!("{}={default}", parameter.name);
            rows.push(vec![String::new(), given, parameter.help.to_owned()]);
        }
    }
    output::table_of_text(&["name", "parameter=default", "what it is"], rows)
}
