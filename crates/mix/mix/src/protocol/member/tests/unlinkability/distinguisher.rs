//! A distinguisher: a classifier that is trained.

/// Trains multinomial logistic regression with samples, and returns the fraction of other samples
/// that it classifies correctly.
pub(in super::super) fn accuracy(
    train: &[(Vec<f64>, usize)],
    test: &[(Vec<f64>, usize)],
    classes: usize,
) -> f64 {
    let right =
        classify(train, test, classes).into_iter().zip(test).filter(|(likely, (_, label))| {
            (0..classes).max_by(|&a, &b| likely[a].total_cmp(&likely[b])) == Some(*label)
        });
    right.count() as f64 / test.len() as f64
}

/// Trains with samples, and returns how likely each class is for each of other samples.
pub(crate) fn classify(
    train: &[(Vec<f64>, usize)],
    test: &[(Vec<f64>, usize)],
    classes: usize,
) -> Vec<Vec<f64>> {
    let scale = Scale::of(train);
    let train: Vec<_> = train.iter().map(|(it, label)| (scale.apply(it), *label)).collect();
    let mut weights = vec![vec![0.0; train[0].0.len()]; classes];
    for _ in 0..300 {
        let mut gradient = vec![vec![0.0; train[0].0.len()]; classes];
        for (features, label) in &train {
            let likely = probabilities(&weights, features);
            for (class, (gradient, likely)) in gradient.iter_mut().zip(likely).enumerate() {
                let error = likely - f64::from(u8::from(class == *label));
                gradient.iter_mut().zip(features).for_each(|(sum, it)| *sum += error * it);
            }
        }
        let rate = 0.1 / train.len() as f64;
        for (weights, gradient) in weights.iter_mut().zip(&gradient) {
            for (weight, gradient) in weights.iter_mut().zip(gradient) {
                // A penalty on the squares of weights.
                *weight -= rate * gradient + 1e-3 * *weight;
            }
        }
    }
    test.iter().map(|(features, _)| probabilities(&weights, &scale.apply(features))).collect()
}

fn probabilities(weights: &[Vec<f64>], features: &[f64]) -> Vec<f64> {
    let score =
        |weights: &Vec<f64>| -> f64 { weights.iter().zip(features).map(|(a, b)| a * b).sum() };
    let scores: Vec<f64> = weights.iter().map(score).collect();
    let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
    let likely: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
    let sum: f64 = likely.iter().sum();
    likely.into_iter().map(|it| it / sum).collect()
}

/// Means and standard deviations of features.
struct Scale(Vec<(f64, f64)>);

impl Scale {
    fn of(samples: &[(Vec<f64>, usize)]) -> Self {
        let count = samples.len() as f64;
        let of = |feature: usize| {
            let values = || samples.iter().map(|(features, _)| features[feature]);
            let mean = values().sum::<f64>() / count;
            let variance = values().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
            (mean, variance.sqrt())
        };
        Self((0..samples[0].0.len()).map(of).collect())
    }

    /// With a constant at the end.
    fn apply(&self, features: &[f64]) -> Vec<f64> {
        let scale = |(value, (mean, deviation)): (&f64, &(f64, f64))| {
            if *deviation > 0.0 { (value - mean) / deviation } else { 0.0 }
        };
        features.iter().zip(&self.0).map(scale).chain([1.0]).collect()
    }
}
