//! Fixed keys for tests, which avoid the search for safe primes. Everybody knows their primes.

use random::RandomGenerator;

use crate::dealer::DealerKey;

/// A key of 256 bits, too short for a signature.
pub fn tiny_key() -> DealerKey {
    key(["c1d747f6fe0c70f25b52bcc41f89b6ff", "cc4f4b18afd6c29a468639c698f590df"])
}

/// A key of 512 bits, the shortest that can sign.
pub fn short_key() -> DealerKey {
    key(SHORT_PRIMES)
}

/// A key of 1024 bits.
pub fn small_key() -> DealerKey {
    key(SMALL_PRIMES)
}

/// A key of 2048 bits.
pub fn large_key() -> DealerKey {
    key(LARGE_PRIMES)
}

fn key(primes: [&str; 2]) -> DealerKey {
    let [p, q] = primes.map(|digits| {
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect::<Vec<u8>>()
    });
    DealerKey::danger_of_any_size(&p, &q, &mut RandomGenerator::seeded().unwrap()).unwrap()
}

pub(crate) const SHORT_PRIMES: [&str; 2] = [
    "fb4f8961e2e2901ea63677509d9b3f392c0fe6db33129f2e43d2f69368358397",
    "e6b321ce431cd2fae458ac8830467b7366c83440d801d295c564bd791335688f",
];

const SMALL_PRIMES: [&str; 2] = [
    "facbaa431ef4120b0a6d868711c986ce4d34f4477bb104cd7f93b1d79f3cc3eb \
     6b8341232d67bc61b1e7192392b32beecf386f4b0c5be514fb54e78ded3ce633",
    "cf1011f7d3a1bb9e80e4acfe4f2b52c3d5d052c9a729cc828bebe1f209cc711f \
     b084f64285c0f4fd8a9036aa85cf9fffe014252d6d6ef37218862e150af3f5a7",
];

const LARGE_PRIMES: [&str; 2] = [
    "d9cbf43084b279be06de545d4cc541cb199f1c498d1f6f9dac593cf065b275ea \
     3127da53a71009091c63827cf16853a64b961d30cee76cdf2fff40bea35bd94d \
     7e374defa9376f95190b5bba01805dd9837e201035179ef005a8d9fe1be1f387 \
     9c60c7be0ea1bfbf93e403494a584e89b7599376cdceca8c9feb22a762127a0f",
    "e07cc4e238bfd8e8e98600dcc2195437fc69d73e647ca95cbfb6afd75e59b1a9 \
     dac99b82ee52e0d5976055050e9793cbc53678b81a3d0edea3cd77b3307f4666 \
     36f84501ec865c7571a1305eaf844f3b2f5d1ed80dd1a83140e6fc881ec0d7ab \
     89229f2f7d126a6abd7d7558c18081263403910b854e1cbaaea2aee0efed7267",
];
