//! The metrics of a service: a table with a row for each, and the text that Prometheus reads.

use std::fmt::{Display, Write};

/// One row of a service's table of metrics: name, help text, and the samples in a status `S`.
#[derive(Debug)]
pub struct PrometheusMetric<S> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&S, &mut MetricSamples<'_>),
}

/// A metric whose value can go down.
pub const fn gauge<S>(
    name: &'static str,
    help: &'static str,
    samples: fn(&S, &mut MetricSamples<'_>),
) -> PrometheusMetric<S> {
    PrometheusMetric { name, kind: "gauge", help, samples }
}

/// A metric whose value only grows; by convention its name ends in `_total`.
pub const fn counter<S>(
    name: &'static str,
    help: &'static str,
    samples: fn(&S, &mut MetricSamples<'_>),
) -> PrometheusMetric<S> {
    PrometheusMetric { name, kind: "counter", help, samples }
}

/// A metric that counts values in buckets; see [`MetricSamples::add_histogram`].
pub const fn histogram<S>(
    name: &'static str,
    help: &'static str,
    samples: fn(&S, &mut MetricSamples<'_>),
) -> PrometheusMetric<S> {
    PrometheusMetric { name, kind: "histogram", help, samples }
}

/// Takes the samples of one metric of one service.
#[derive(Debug)]
pub struct MetricSamples<'a> {
    name: &'static str,
    /// The labels that all samples of the service have.
    labels: &'a str,
    text: &'a mut String,
}

impl MetricSamples<'_> {
    /// Adds a sample with these labels.
    pub fn add(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.add_named("", labels, value);
    }

    /// Adds a sample of a metric whose name has this suffix.
    fn add_named(&mut self, suffix: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let Self { name, labels: own, text } = self;
        let _ = write!(text, "{name}{suffix}{{{own}");
        for (label, value) in labels {
            let _ = write!(text, ",{label}=\"{}\"", escaped(&value.to_string()));
        }
        let _ = writeln!(text, "}} {value}");
    }

    /// Adds a histogram with these labels: how many values are at most each of the bounds and more
    /// than the one before, how many are more than the last one, and the sum of all values.
    pub fn add_histogram(
        &mut self,
        labels: &[(&str, &dyn Display)],
        bounds: impl IntoIterator<Item = f64>,
        counts: &[u64],
        sum: f64,
    ) {
        let bounds = bounds.into_iter().map(|bound| bound.to_string());
        let mut total = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            total += count;
            self.add_named("_bucket", &[labels, &[("le", &bound)]].concat(), total);
        }
        self.add_named("_sum", labels, sum);
        self.add_named("_count", labels, total);
    }

    /// Adds a sample with these labels, if there is a value.
    pub fn add_known(&mut self, labels: &[(&str, &dyn Display)], value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(labels, value);
        }
    }
}

/// The metrics of several services in Prometheus's text format. The samples of a metric stand
/// together, in the order of the first sample of each.
#[derive(Debug, Default)]
pub struct Exposition(Vec<MetricFamily>);

#[derive(Debug)]
struct MetricFamily {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Exposition {
    /// Adds the samples of these metrics in the status of a service, with the labels `service`,
    /// which is its kind, and `name`.
    pub fn add<S>(&mut self, kind: &str, name: &str, metrics: &[PrometheusMetric<S>], status: &S) {
        let labels = format!("service=\"{kind}\",name=\"{}\"", escaped(name));
        for metric in metrics {
            let mut text = String::new();
            let mut samples = MetricSamples { name: metric.name, labels: &labels, text: &mut text };
            (metric.samples)(status, &mut samples);
            if !text.is_empty() {
                self.family(metric).samples.push_str(&text);
            }
        }
    }

    fn family<S>(&mut self, metric: &PrometheusMetric<S>) -> &mut MetricFamily {
        let PrometheusMetric { name, kind, help, .. } = *metric;
        let known = self.0.iter().position(|family| family.name == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(MetricFamily { name, kind, help, samples: String::new() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// The text.
    pub fn text(&self) -> String {
        let family = |MetricFamily { name, kind, help, samples }: &MetricFamily| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
        };
        self.0.iter().map(family).collect()
    }
}

/// A label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_cumulative_buckets() {
        let delays = histogram::<()>("delay_seconds", "Delays.", |(), samples| {
            samples.add_histogram(&[("group", &"a")], [0.5, 1.0], &[3, 0, 2], 9.25);
        });
        let mut exposition = Exposition::default();
        exposition.add("mix", "m", &[delays], &());
        let expected = "# HELP delay_seconds Delays.\n# TYPE delay_seconds histogram\n\
             delay_seconds_bucket{service=\"mix\",name=\"m\",group=\"a\",le=\"0.5\"} 3\n\
             delay_seconds_bucket{service=\"mix\",name=\"m\",group=\"a\",le=\"1\"} 3\n\
             delay_seconds_bucket{service=\"mix\",name=\"m\",group=\"a\",le=\"+Inf\"} 5\n\
             delay_seconds_sum{service=\"mix\",name=\"m\",group=\"a\"} 9.25\n\
             delay_seconds_count{service=\"mix\",name=\"m\",group=\"a\"} 5\n";
        assert_eq!(exposition.text(), expected);
    }
}
