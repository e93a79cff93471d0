//! Values in an experiment's file: numbers, and how values are written in text.

use toml::Value;

/// The value as a number, if it is one.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        #[expect(clippy::cast_precision_loss, reason = "no quantity here needs 53 bits")]
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// Whether two values are the same; a whole number is the same with a point and without.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    a == b || number(a).is_some_and(|a| Some(a) == number(b))
}

/// The value as text, if it is text, a finite number, or true or false.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) if number.is_finite() => Some(written(*number)),
        Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The number as it is written: with an exponent where it would be many zeros without.
pub(crate) fn written(number: f64) -> String {
    if number == 0.0 || (1e-9..1e16).contains(&number.abs()) {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// The value as a person is told it.
pub(crate) fn display(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string())
}
