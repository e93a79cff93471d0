//! Cookies of the page. Pure.

/// A cookie that only this page gets, and no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageCookie {
    name: String,
    is_secure: bool,
}

/// How long the cookie of the only user and of a link is kept, in seconds: a year.
pub(crate) const YEAR_S: u64 = 31_536_000;

impl PageCookie {
    /// The cookie of a server on a port: pages on other ports of the host share cookies.
    pub(crate) fn of_port(port: u16) -> Self {
        Self { name: format!("sunder-{port}"), is_secure: false }
    }

    /// A cookie that only this host can set, over TLS.
    pub(crate) fn of_host() -> Self {
        Self { name: "__Host-sunder".to_owned(), is_secure: true }
    }

    /// The cookie of a link to a run.
    pub(crate) fn of_link(&self, run: &str) -> Self {
        Self { name: format!("{}-{run}", self.name), is_secure: self.is_secure }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the cookie.
    pub(crate) fn of(&self, value: &str, max_age_s: u64) -> String {
        let Self { name, is_secure } = self;
        let secure = if *is_secure { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}; Max-Age={max_age_s}")
    }

    /// Removes the cookie.
    pub(crate) fn empty(&self) -> String {
        self.of("", 0)
    }
}
