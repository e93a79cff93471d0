//! The accounts of a server: the database, and how much anybody may ask of it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use accounts::{
    Account, AccountId, AccountName, AccountSecret, AccountStore, LoginThrottle, PasswordHasher,
    ThrottleLimits, now,
};
use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::error::{ApiError, ApiResult};
use crate::quota::QuotaLimits;

/// How many passwords are hashed at a time, and how many requests for it may wait in addition.
const MAX_HASHING: usize = 2;
const MAX_HASHING_WAITING: usize = 32;

/// How often one may guess the password of a name from one place, from anywhere, and of any names
/// from one place.
const NAME_AND_SOURCE: ThrottleLimits = ThrottleLimits { burst: 10, interval_s: 30 };
const NAME: ThrottleLimits = ThrottleLimits { burst: 100, interval_s: 10 };
const SOURCE: ThrottleLimits = ThrottleLimits { burst: 30, interval_s: 10 };

/// How many requests of an account are answered at a time, and how many runs it watches.
const MAX_REQUESTS: usize = 16;
const MAX_WATCHED: usize = 32;

const DAY: Duration = Duration::from_secs(86_400);

/// The accounts of a server.
pub(crate) struct AccountService {
    store: Mutex<AccountStore>,
    hasher: PasswordHasher,
    hashing: Arc<Semaphore>,
    hashing_or_waiting: Arc<Semaphore>,
    throttles: Mutex<LoginThrottles>,
    places: Mutex<HashMap<AccountId, AccountPlaces>>,
    pub(crate) limits: QuotaLimits,
}

struct LoginThrottles {
    name_and_source: LoginThrottle,
    name: LoginThrottle,
    source: LoginThrottle,
}

/// What of an account may go on at a time.
#[derive(Clone)]
struct AccountPlaces {
    requests: Arc<Semaphore>,
    long_bodies: Arc<Semaphore>,
    watched: Arc<Semaphore>,
}

impl AccountService {
    pub(crate) fn new(store: AccountStore, hasher: PasswordHasher, limits: QuotaLimits) -> Self {
        let throttles = LoginThrottles {
            name_and_source: LoginThrottle::new(NAME_AND_SOURCE),
            name: LoginThrottle::new(NAME),
            source: LoginThrottle::new(SOURCE),
        };
        Self {
            store: Mutex::new(store),
            hasher,
            hashing: Arc::new(Semaphore::new(MAX_HASHING)),
            hashing_or_waiting: Arc::new(Semaphore::new(MAX_HASHING + MAX_HASHING_WAITING)),
            throttles: Mutex::new(throttles),
            places: Mutex::default(),
            limits,
        }
    }

    fn store(&self) -> MutexGuard<'_, AccountStore> {
        // A panic while it was locked has rolled its transaction back.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account that a session is signed in to.
    pub(crate) fn account_of(&self, session: &str) -> Option<Account> {
        let account = self.store().account_of(session, now());
        account.unwrap_or_else(|error| {
            warn!("{error}");
            None
        })
    }

    /// Ends a session.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub(crate) fn end_session(&self, session: &str) -> ApiResult<()> {
        self.store().end_session(session).map_err(internal)
    }

    /// Signs in. The answer and its time are the same whether the name or the password is wrong.
    ///
    /// # Errors
    /// If one of them is wrong, or there were too many tries.
    pub(crate) async fn login(
        self: &Arc<Self>,
        name: String,
        password: String,
        source: IpAddr,
    ) -> ApiResult<AccountSecret> {
        self.count_try(&name, source)?;
        let service = Arc::clone(self);
        let tried = name.clone();
        let session = self.hashing(move || {
            let found = name.parse::<AccountName>().ok();
            let found = found.map(|name| service.store().find(&name)).transpose();
            let (id, hash) = found.map_err(internal)?.flatten().unzip();
            let hash: Option<String> = hash.flatten();
            let is_right = service.hasher.is_right(&password, hash.as_deref());
            match (id, hash) {
                (Some(id), Some(hash)) if is_right => {
                    service.store().begin_session(id, &hash, now()).map_err(internal)
                }
                _ => Ok(None),
            }
        });
        let session = session.await?.ok_or_else(wrong_login)?;
        self.forgive(&tried, source);
        Ok(session)
    }

    /// Accepts an invitation, and signs in.
    ///
    /// # Errors
    /// If it is not valid, or the password cannot be used.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        secret: String,
        password: String,
    ) -> ApiResult<AccountSecret> {
        let invalid = || {
            let why = "this invitation was accepted, has expired or was replaced: ask for another";
            ApiError::new(StatusCode::FORBIDDEN, why)
        };
        // Nobody makes the server hash without an invitation.
        self.store().invited(&secret, now()).map_err(internal)?.ok_or_else(invalid)?;
        let service = Arc::clone(self);
        self.hashing(move || {
            let hash = service.hasher.hash(&password).map_err(refused)?;
            let mut store = service.store();
            let account = store.accept(&secret, &hash, now()).map_err(internal)?;
            let account = account.ok_or_else(invalid)?;
            let session = store.begin_session(account.id, &hash, now()).map_err(internal)?;
            session.ok_or_else(invalid)
        })
        .await
    }

    /// Changes the password of an account, which ends all its sessions, and signs in again.
    ///
    /// # Errors
    /// If the old password is wrong, or the new one cannot be used.
    pub(crate) async fn change_password(
        self: &Arc<Self>,
        account: Account,
        old: String,
        new: String,
        source: IpAddr,
    ) -> ApiResult<AccountSecret> {
        self.count_try(account.name.as_str(), source)?;
        let service = Arc::clone(self);
        let tried = account.name.clone();
        let session = self.hashing(move || {
            let found = service.store().find(&account.name).map_err(internal)?;
            let hash = found.filter(|(id, _)| *id == account.id).and_then(|(_, hash)| hash);
            if !service.hasher.is_right(&old, hash.as_deref()) {
                return Err(ApiError::new(StatusCode::FORBIDDEN, "the old password is wrong"));
            }
            let hashed = service.hasher.hash(&new).map_err(refused)?;
            let old_hash = hash.unwrap_or_default();
            let mut store = service.store();
            let changed = store.change_password(account.id, &old_hash, &hashed);
            if !changed.map_err(internal)? {
                return Err(wrong_login());
            }
            let session = store.begin_session(account.id, &hashed, now()).map_err(internal)?;
            session.ok_or_else(wrong_login)
        });
        let session = session.await?;
        self.forgive(tried.as_str(), source);
        Ok(session)
    }

    /// Hashes a password in a thread for it, of which there are few.
    async fn hashing<T: Send + 'static>(
        &self,
        hash: impl FnOnce() -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let Ok(_waiting) = self.hashing_or_waiting.try_acquire() else {
            let why = "many people sign in at the moment: repeat it in a moment";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let place = Arc::clone(&self.hashing).acquire_owned().await.map_err(io::Error::other)?;
        let hashed = spawn_blocking(move || {
            // It goes on when the browser disconnects, and keeps its place until then.
            let _place = place;
            hash()
        });
        hashed.await.map_err(io::Error::other)?
    }

    fn count_try(&self, name: &str, source: IpAddr) -> ApiResult<()> {
        let (source, now) = (network(source), now());
        let mut throttles = self.throttles.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = throttles
            .source
            .try_once(&source, now)
            .and_then(|()| throttles.name_and_source.try_once(&(name, source), now))
            .and_then(|()| throttles.name.try_once(&name, now));
        tried.map_err(|wait| {
            let why = format!("there were too many tries: wait {wait} s");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, why)
        })
    }

    fn forgive(&self, name: &str, source: IpAddr) {
        let mut throttles = self.throttles.lock().unwrap_or_else(PoisonError::into_inner);
        throttles.name_and_source.forgive(&(name, network(source)));
    }

    /// A place for a request of an account.
    ///
    /// # Errors
    /// If too many of its requests are under way.
    pub(crate) fn request_place(&self, id: AccountId) -> ApiResult<OwnedSemaphorePermit> {
        let places = self.places(id).requests;
        places.try_acquire_owned().map_err(|_| {
            let why = format!("{MAX_REQUESTS} of your requests are under way: wait for an answer");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, why)
        })
    }

    /// The place for the long request of an account.
    ///
    /// # Errors
    /// If another one is read or answered.
    pub(crate) fn long_body_place(&self, id: AccountId) -> ApiResult<OwnedSemaphorePermit> {
        self.places(id).long_bodies.try_acquire_owned().map_err(|_| {
            let why = "another long request of yours is read: repeat it in a moment";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, why)
        })
    }

    /// A place for a page of an account that watches a run.
    ///
    /// # Errors
    /// If too many do.
    pub(crate) fn watching_place(&self, id: AccountId) -> ApiResult<OwnedSemaphorePermit> {
        let places = self.places(id).watched;
        places.try_acquire_owned().map_err(|_| {
            let why = format!("{MAX_WATCHED} of your pages watch runs already: close some");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }

    fn places(&self, id: AccountId) -> AccountPlaces {
        let places = |number| Arc::new(Semaphore::new(number));
        let mut all = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || AccountPlaces {
            requests: places(MAX_REQUESTS),
            long_bodies: places(1),
            watched: places(MAX_WATCHED),
        };
        all.entry(id).or_insert_with(new).clone()
    }

    /// Whether an account was removed.
    pub(crate) fn is_removed(&self, id: AccountId) -> bool {
        self.store().is_removed(id).unwrap_or_else(|error| {
            warn!("{error}");
            false
        })
    }

    /// How long an account's runs have run today.
    pub(crate) fn time_today(&self, id: AccountId) -> Duration {
        let time = self.store().run_time(id, now() / DAY.as_secs());
        Duration::from_millis(time.unwrap_or_else(|error| {
            warn!("{error}");
            0
        }))
    }

    /// Adds to the time for which an account's runs have run today.
    pub(crate) fn add_time(&self, id: AccountId, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let added = self.store().add_run_time(id, now() / DAY.as_secs(), milliseconds);
        if let Err(error) = added {
            warn!("{error}");
        }
    }
}

/// The network of an address that one person has: of IPv6 the first 64 bits.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

fn wrong_login() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "the name or the password is wrong")
}

fn refused(error: accounts::PasswordError) -> ApiError {
    match error {
        accounts::PasswordError::Hashing(_) => internal(error),
        _ => crate::refusal::RefusedRequest::new("password", error.to_string()).into(),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn internal(error: impl std::fmt::Display) -> ApiError {
    warn!("{error}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the accounts cannot be read or written")
}
