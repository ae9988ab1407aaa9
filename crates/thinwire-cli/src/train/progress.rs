//! Shows how far a training is: a bar on a terminal, a line for each measurement elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use thinwire_train::event::{Event, Measure};

use crate::{human, output};

/// Shows events as they happen.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    measure: Measure,
    /// The loss of the last steps, smoothed.
    loss: Option<f64>,
    measured: String,
}

impl Progress {
    /// Nothing to show yet.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let lines = !std::io::stderr().is_terminal();
        Progress { bar, lines, measure: Measure::Accuracy, loss: None, measured: String::new() }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Run(run) => {
                output::note(&format!(
                    "{} workers train {} ({} weights) on {} with {}: {} steps",
                    run.workers,
                    run.model,
                    human::count(run.parameters as u64),
                    run.data,
                    run.method,
                    human::count(run.steps)
                ));
                self.measure = run.measure;
                if !self.lines {
                    self.bar = ProgressBar::new(run.steps).with_position(run.resumed_at);
                    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
                    // The template is a constant: it is right or the tests fail.
                    self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                    self.bar.enable_steady_tick(Duration::from_millis(200));
                }
            }
            Event::Step(step) if step.loss.is_finite() => {
                let loss = self.loss.map_or(step.loss, |loss| 0.95 * loss + 0.05 * step.loss);
                self.loss = Some(loss);
                self.bar.set_position(step.step + 1);
                self.bar.set_message(format!("loss {loss:.3}  {}", self.measured));
            }
            Event::Evaluation(evaluation) => {
                self.measured = measured(self.measure, evaluation.value);
                if self.lines {
                    output::note(&format!(
                        "step {}, epoch {}: {}, loss {:.4}, {} sent, {}",
                        evaluation.step,
                        human::three_digits(evaluation.epoch),
                        self.measured,
                        evaluation.loss,
                        human::bytes(evaluation.sent),
                        human::duration(Duration::from_secs_f64(evaluation.elapsed)),
                    ));
                }
            }
            Event::Decision(decision) if decision.changes => {
                self.bar.suspend(|| output::note(&format!("step {}: {decision}", decision.step)));
            }
            Event::Note { text, .. } => self.note(text),
            _ => {}
        }
    }

    /// Says something beside the bar.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What a model reached: `accuracy 97.3 %` or `perplexity 4.56`.
pub fn measured(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Accuracy => format!("accuracy {:.2} %", 100.0 * value),
        Measure::Perplexity => format!("perplexity {value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_of_the_bar_is_right() {
        assert!(ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}").is_ok());
        assert_eq!(measured(Measure::Accuracy, 0.97345), "accuracy 97.34 %");
        assert_eq!(measured(Measure::Perplexity, 4.5678), "perplexity 4.568");
    }
}
