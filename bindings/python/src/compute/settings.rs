//! The settings of a session, by their names in Python.

use compute::{
    ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSettings, GarblingScheme, OutputLearners,
    TransferKind,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The names by which Python chooses the settings of a session.
pub(super) struct PyComputeSettings<'a> {
    pub(super) role: &'a str,
    pub(super) protocol: &'a str,
    /// `None` for the default of the protocol.
    pub(super) security: Option<&'a str>,
    pub(super) scheme: &'a str,
    pub(super) transfers: &'a str,
    pub(super) output_to: &'a str,
}

impl PyComputeSettings<'_> {
    /// # Errors
    /// If there is no such name, or two of them do not fit together.
    pub(super) fn parse(&self) -> PyResult<(ComputeRole, ComputeSettings)> {
        let role = chosen(
            "role",
            self.role,
            &[("garbler", ComputeRole::Garbler), ("evaluator", ComputeRole::Evaluator)],
        )?;
        let protocol = chosen(
            "protocol",
            self.protocol,
            &[("yao", ComputeProtocol::Yao), ("gmw", ComputeProtocol::Gmw)],
        )?;
        let transfers = chosen(
            "transfers",
            self.transfers,
            &[
                ("iknp", TransferKind::Iknp),
                ("softspoken2", TransferKind::SoftSpoken2),
                ("softspoken4", TransferKind::SoftSpoken4),
                ("softspoken8", TransferKind::SoftSpoken8),
            ],
        )?;
        let learns = chosen(
            "output_to",
            self.output_to,
            &[
                ("both", OutputLearners::Both),
                ("evaluator", OutputLearners::Evaluator),
                ("garbler", OutputLearners::Garbler),
            ],
        )?;
        let schemes = GarblingScheme::ALL.map(|scheme| (scheme.name(), scheme));
        let scheme = chosen("scheme", self.scheme, &schemes)?;
        let defaults = ComputeSettings::default();
        let default = match protocol {
            ComputeProtocol::Yao => defaults.security,
            ComputeProtocol::Gmw => ComputeSecurity::SemiHonest,
        };
        let levels = ComputeSecurity::ALL.map(|level| (level.name(), level));
        let security = self.security.map(|name| chosen("security", name, &levels)).transpose()?;
        let security = security.unwrap_or(default);
        if protocol == ComputeProtocol::Gmw && security != ComputeSecurity::SemiHonest {
            let text = "protocol=\"gmw\" is semi-honest: leave out security, or use yao";
            return Err(PyValueError::new_err(text));
        }
        if security == ComputeSecurity::Malicious && learns != OutputLearners::Both {
            let text =
                "with security=\"malicious\" both parties learn the output: leave out output_to";
            return Err(PyValueError::new_err(text));
        }
        Ok((role, ComputeSettings { protocol, security, scheme, transfers, learns, ..defaults }))
    }
}

/// The choice with a name.
///
/// # Errors
/// If there is none.
pub(super) fn chosen<T: Copy>(what: &str, name: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(known, _)| *known == name);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        PyValueError::new_err(format!("{what}={name:?}: choose one of {}", known.join(", ")))
    })
}
