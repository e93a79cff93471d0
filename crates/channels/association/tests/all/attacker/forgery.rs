//! Lists and confirms that an adversary writes, well-formed or not.

use sim::SeededRng;
use sunder_association::{AssociationMessageKind, COOKIE_LEN, CookieList};

/// The fields of a List or Confirm, without any check of their consistency.
#[derive(Clone)]
pub(crate) struct Forgery {
    scheme: u8,
    k: u8,
    n: u8,
    options: u32,
    cookies: Vec<[u8; COOKIE_LEN]>,
}

/// The cookies that an adversary can use.
pub(crate) struct Inks<'a> {
    /// All that it has ever seen, of any connection and any handshake.
    pub(crate) known: &'a [[u8; COOKIE_LEN]],
    /// Those of its own connections.
    pub(crate) own: &'a [[u8; COOKIE_LEN]],
    /// That of the victim's honest connection, once seen.
    pub(crate) honest: Option<[u8; COOKIE_LEN]>,
}

impl Forgery {
    /// An exact copy.
    pub(crate) fn copy(list: &CookieList) -> Self {
        let terms = list.terms();
        Self {
            scheme: terms.scheme() as u8,
            k: terms.threshold(),
            n: terms.channels(),
            options: terms.options(),
            cookies: list.cookies().iter().map(|cookie| *cookie.as_bytes()).collect(),
        }
    }

    /// A new list over these cookies.
    pub(crate) fn of(cookies: Vec<[u8; COOKIE_LEN]>) -> Self {
        let n = u8::try_from(cookies.len()).unwrap();
        Self { scheme: 1, k: n, n, options: 0, cookies }
    }

    /// One meaningful change.
    pub(crate) fn edit(&mut self, rng: &mut SeededRng, inks: &Inks) {
        match rng.below(12) {
            0 => self.replace(rng.index(self.cookies.len()), rng.pick(inks.known)),
            1 | 2 => self.replace_honest(inks.honest, rng.pick(inks.own)),
            3 => self.drop_honest(inks.honest),
            4 => self.append(rng.pick(inks.own)),
            5 => self.append(rng.pick(inks.known)),
            6 => rng.shuffle(&mut self.cookies),
            7 => self.k = 1,
            8 => self.scheme = 3 - self.scheme.min(2),
            9 => self.options ^= 1 << rng.below(8),
            10 => self.n = self.n.wrapping_sub(1),
            _ => *self = Self::of(inks.own.to_vec()),
        }
    }

    /// The encoding of the message.
    pub(crate) fn encode(&self, kind: AssociationMessageKind) -> Vec<u8> {
        let body_len = u16::try_from(8 + COOKIE_LEN * self.cookies.len()).unwrap();
        let mut bytes = b"SNDR\x01".to_vec();
        bytes.push(kind as u8);
        bytes.extend(body_len.to_be_bytes());
        bytes.extend([1, self.scheme, self.k, self.n]);
        bytes.extend(self.options.to_be_bytes());
        bytes.extend(self.cookies.iter().flatten());
        bytes
    }

    fn replace(&mut self, position: usize, cookie: Option<&[u8; COOKIE_LEN]>) {
        if let (Some(place), Some(cookie)) = (self.cookies.get_mut(position), cookie) {
            *place = *cookie;
        }
    }

    fn replace_honest(
        &mut self,
        honest: Option<[u8; COOKIE_LEN]>,
        cookie: Option<&[u8; COOKIE_LEN]>,
    ) {
        let position = self.cookies.iter().position(|&cookie| Some(cookie) == honest);
        if let Some(position) = position {
            self.replace(position, cookie);
        }
    }

    fn drop_honest(&mut self, honest: Option<[u8; COOKIE_LEN]>) {
        self.cookies.retain(|&cookie| Some(cookie) != honest);
        self.fit();
    }

    fn append(&mut self, cookie: Option<&[u8; COOKIE_LEN]>) {
        self.cookies.extend(cookie);
        self.fit();
    }

    /// Adapts the terms to the cookies, so that the change is not detected by its form.
    fn fit(&mut self) {
        self.n = u8::try_from(self.cookies.len()).unwrap();
        self.k = if self.scheme == 1 { self.n } else { self.k.min(self.n) };
    }
}
