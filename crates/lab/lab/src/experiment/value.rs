//! Values in an experiment's file: numbers, and values as text.

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

/// Whether two values are equal. A whole number equals the same number with a point.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    a == b || number(a).is_some_and(|a| Some(a) == number(b))
}

/// The value as text, if it is text, a finite number, or a Boolean.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) if number.is_finite() => Some(written(*number)),
        Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The number as text, with an exponent if it would have many zeros otherwise.
pub(crate) fn written(number: f64) -> String {
    if number == 0.0 || (1e-9..1e16).contains(&number.abs()) {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// The value as text, for messages.
pub(crate) fn display(value: &Value) -> String {
    text(value).unwrap_or_else(|| value.to_string())
}
