//! What the models predict of an experiment, before it runs.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Table;

use super::file::predict;
use super::{Experiment, SweepPoint};

/// What is predicted of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointPrediction<'a> {
    /// The values of the swept keys.
    pub point: &'a Table,
    /// The predicted values. What the paper published is not among them.
    pub values: Vec<ValuePrediction<'a>>,
    /// What is predicted besides numbers: of a computation over `auto` the expected `transport` and
    /// the `reason`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<&'static str, String>,
    /// How long the measurement of a trial takes, in seconds, if that is predicted.
    #[serde(skip)]
    pub duration_s: Option<f64>,
}

/// The prediction of a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValuePrediction<'a> {
    /// The name of the value.
    pub name: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// The prediction.
    pub predicted: f64,
}

impl Experiment {
    /// What is predicted of the first points, up to a number of them. This may take a moment.
    pub fn predict(&self, most: usize) -> Vec<PointPrediction<'_>> {
        self.points.iter().take(most).map(|point| self.predict_point(point)).collect()
    }

    fn predict_point<'a>(&'a self, point: &'a SweepPoint) -> PointPrediction<'a> {
        let predictions = point.predictions();
        let metrics = self.metrics.iter().filter(|metric| !metric.published);
        let values = metrics.filter_map(|metric| {
            let predicted = *predictions.get(&metric.name)?;
            Some(ValuePrediction { name: &metric.name, unit: &metric.unit, predicted })
        });
        let forecast = predict::forecast(&point.predictors, &point.trial);
        PointPrediction {
            point: point.swept(),
            values: values.collect(),
            texts: forecast.texts,
            duration_s: forecast.duration_s,
        }
    }
}
