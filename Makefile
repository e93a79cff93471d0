# What a person runs here. `make` alone lists it.

CARGO ?= cargo
FUZZ_SECONDS ?= 600
FIGURES ?=
MINUTES ?=
PREFIX ?= /usr/local
DESTDIR ?=
# `sudo`, for a PREFIX in which only root can write.
SUDO ?=
FUZZ_TARGETS = share_file handshake record socks experiment tunnel sabul burst transport \
	superpacket directory signing quorum_server quorum_log quorum_handover quorum_link quorum_files quorum_store quorum_api \
	signature_format ssh_agent pkcs11_files bristol_old bristol_fashion netlist ot compute udp probe mix agent archive datagrams

.PHONY: help demo test lint bench speed docs book fuzz soak browser neon figures setup setup-lab setup-lint setup-book setup-deb audit \
	dist portable portable-test wheel wheel-test compare-builds compatibility install install-lib uninstall deb deb-test image image-test

help:
	@echo 'make demo    a file crosses three channels that no two of them can read'
	@echo 'make test    all tests (installs the programs that they try it with, as curl and nginx)'
	@echo 'make lint    format, widths, names, figures, clippy, fuzz targets, documentation, layers of modules and crates, licences'
	@echo 'make bench   speed: sharing beside libisal, plans beside scipy, MICSS beside a plain relay'
	@echo 'make speed   the tunnel on plain veth channels, beside wireguard-go (as root), into docs/results'
	@echo 'make docs    the API documentation, in target/doc'
	@echo 'make book    the guides, protocols and formats as a book with search, in target/book'
	@echo 'make fuzz    every fuzz target, FUZZ_SECONDS=$(FUZZ_SECONDS) each'
	@echo 'make browser Chromium (installs it): 300 requests at once through SOCKS5, and the whole of the'
	@echo '             page of the laboratory (its short path is in make test)'
	@echo 'make soak    large files, a tunnel, a stream and a refresh under 100,000 random conditions each, floods, streams that break, servers that are killed, cut off and hostile: hours'
	@echo 'make figures the experiments that two processors carry, or FIGURES="NAME ...", into docs/results: a day;'
	@echo '             each for at most MINUTES=N, and the next time it goes on'
	@echo 'make neon    tests of the sharing crate for 64-bit ARM, emulated'
	@echo 'make install PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)   the program, man pages, completions of shells,'
	@echo '             units for systemd; make uninstall removes it'
	@echo 'make install-lib PREFIX=$(PREFIX)   the transport layer for C and C++: headers and libraries;'
	@echo '             the PKCS #11 module of quorums'
	@echo 'make portable   the program for systems with glibc $(GLIBC) or newer, target/portable/sunder'
	@echo 'make wheel   the Python package for such systems, in target/wheels; make wheel-test uses it'
	@echo 'make compare-builds   builds the program in two folders, and compares byte for byte'
	@echo 'make compatibility   the version before at one end, this one at the other'
	@echo 'make deb     Debian packages, in target/deb'
	@echo 'make deb-test   installs, upgrades and removes them in a minimal Debian 12 (as root)'
	@echo 'make image   a container image, target/image/sunder.tar (as root); make image-test runs it'
	@echo 'make audit   known vulnerabilities of dependencies (needs the network)'

# Without the systems that this demonstration does not show: they take most of the time to compile.
demo:
	$(CARGO) run --profile demo --locked --package sunder-cli --no-default-features -- demo

test: setup
	scripts/run-tests
	scripts/test-python

lint: setup-lint
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bindings/python/Cargo.toml --check
	scripts/check-modules
	scripts/check-names
	scripts/check-width
	scripts/check-figures --self-test
	scripts/sha1-circuit --test
	scripts/check-monitoring
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package sunder-cli --no-default-features --locked -- -D warnings
	$(CARGO) clippy --locked --manifest-path bindings/python/Cargo.toml --target-dir target/python -- -D warnings
	RUSTFLAGS='--cfg fuzzing' $(CARGO) check --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) deny --locked check bans licenses sources
	$(CARGO) deny --manifest-path bindings/python/Cargo.toml check \
		--allow license-exception-not-encountered bans licenses sources

bench:
	scripts/setup libisal.so.2:libisal2
	$(CARGO) bench --locked --package sunder-sharing --bench sharing
	$(CARGO) bench --locked --package sunder-model --bench programs
	$(CARGO) bench --locked --package sunder-micss --bench loopback
	$(CARGO) bench --locked --package sunder-burst --bench repair
	$(CARGO) bench --locked --package sunder-remicss --bench symbols
	$(CARGO) bench --locked --package sunder-remicss --bench receiving
	$(CARGO) bench --locked --package sunder-quorum --bench signing
	$(CARGO) bench --locked --package sunder-quorum --bench refresh
	$(CARGO) bench --locked --package sunder-quorum --bench log
	$(CARGO) bench --locked --package sunder-quorum --bench log_engines
	$(CARGO) bench --locked --package sunder-ot --bench transfers

speed:
	@PATH=$$PATH:/usr/sbin scripts/setup iperf3 python3 ip:iproute2
	$(CARGO) build --release --locked --package sunder-cli
	scripts/tunnel-speed --out docs/results/tunnel-speed
	scripts/psi-speed

docs:
	$(CARGO) doc --workspace --no-deps --locked

book: setup-book
	scripts/book

# cargo-fuzz passes unstable flags, which the stable compiler takes only with RUSTC_BOOTSTRAP.
# SQLite's source has two constants of one name, which ASAN takes for an error.
fuzz:
	@command -v cargo-fuzz >/dev/null || { echo 'installing cargo-fuzz'; $(CARGO) install --locked cargo-fuzz; }
	@for target in $(FUZZ_TARGETS); do \
		RUSTC_BOOTSTRAP=1 ASAN_OPTIONS=detect_odr_violation=0 $(CARGO) fuzz run --fuzz-dir fuzz $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

figures: setup-lab
	$(CARGO) build --release --locked --package sunder-cli
	$(CARGO) build --release --locked --package sunder-sabul --example peer
	mkdir -p target/lab
	cp target/release/examples/peer target/lab/sabul-peer
	g++ -O2 -w -o target/lab/libudt-peer crates/transport/sabul/tests/libudt/peer.cpp -ludt -lpthread
	$(CARGO) build --release --locked --manifest-path crates/lab/quinn-peer/Cargo.toml --target-dir target/quinn-peer
	cp target/quinn-peer/release/quinn-peer target/lab
	PATH=$$PWD/target/lab:$$PATH MINUTES=$(MINUTES) scripts/figures $(FIGURES)

soak:
	$(CARGO) build --release --locked --package sunder-cli
	scripts/soak

browser:
	@PATH=$$PATH:/usr/sbin scripts/setup chromium chromedriver:chromium-driver python3 ip:iproute2
	$(CARGO) build --release --locked --package sunder-cli
	scripts/browser
	scripts/page-test --whole --sunder target/release/sunder

neon:
	scripts/neon

setup:
	@PATH=$$PATH:/usr/sbin scripts/setup curl tcpdump python3 nginx:nginx-light /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream haproxy nft:nftables ip:iproute2 ssh:openssh-client sshd:openssh-server git rsync iperf3 psql:postgresql openssl redis-server redis-cli:redis-tools nc.openbsd:netcat-openbsd gpg gpgv pkcs11-tool:opensc ping:iputils-ping bwrap:bubblewrap prlimit:util-linux faketime gcc g++ pkg-config libudt.so:libudt-dev chromium chromedriver:chromium-driver zbarimg:zbar-tools zsh fish yosys
	scripts/build-cometbft

setup-lab:
	@PATH=$$PATH:/usr/sbin scripts/setup iperf3 nginx:nginx-light wrk g++ libudt.so:libudt-dev

# libFuzzer, which the fuzz targets link, is C++.
setup-lint:
	scripts/setup python3 g++
	@command -v cargo-deny >/dev/null || { echo 'installing cargo-deny, once: a few minutes'; $(CARGO) install --locked cargo-deny; }

setup-book:
	scripts/setup python3
	@command -v mdbook >/dev/null || { echo 'installing mdbook, once: a few minutes'; $(CARGO) install --locked mdbook --no-default-features --features search; }

# The folder of the source and that of Cargo are left out of what is compiled.
FOLDERS = $(CURDIR)=sunder $(or $(CARGO_HOME),$(HOME)/.cargo)=cargo
WITHOUT_FOLDERS = CFLAGS="$(CFLAGS) $(FOLDERS:%=-ffile-prefix-map=%)" \
	RUSTFLAGS="$(RUSTFLAGS) $(FOLDERS:%=--remap-path-prefix=%)"
DIST = $(WITHOUT_FOLDERS) $(CARGO) build --locked --target-dir target

# OPTIONS are for cargo.
dist:
	$(DIST) --profile dist --package sunder-cli $(OPTIONS)

install: dist
	scripts/bill-of-materials target/materials
	$(SUDO) env DESTDIR=$(DESTDIR) STRIP=yes scripts/install-program target/dist/sunder $(PREFIX)

# The version of glibc with which what `make portable` and `make wheel` build must run.
GLIBC ?= 2.28
PORTABLE = $(shell uname -m)-unknown-linux-gnu

# The program for older systems than this one.
portable:
	scripts/zig-tools
	PATH=$(CURDIR)/target/zig/bin:$$PATH $(DIST:build=zigbuild) --profile dist --package sunder-cli \
		--target $(PORTABLE).$(GLIBC) $(OPTIONS)
	mkdir -p target/portable
	strip -o target/portable/sunder target/$(PORTABLE)/dist/sunder
	scripts/check-glibc $(GLIBC) target/portable/sunder

# As root.
portable-test: portable
	scripts/portable-test

wheel:
	scripts/zig-tools
	$(WITHOUT_FOLDERS) GLIBC=$(GLIBC) scripts/wheel

wheel-test: wheel
	scripts/wheel-test

# Whether the program is the same if it is built in another folder.
compare-builds:
	scripts/compare-builds

# The program of the version before with this one: docs/compatibility.md.
compatibility:
	$(CARGO) build --release --locked --package sunder-cli
	scripts/compatibility "$$(scripts/old-program)" target/release/sunder

install-lib:
	$(CARGO) build --release --locked --package sunder-transport-c --package sunder-pkcs11
	$(SUDO) env DESTDIR=$(DESTDIR) scripts/install-lib target/release $(PREFIX)
	$(SUDO) install -D -m 755 target/release/libsunder_pkcs11.so \
		$(DESTDIR)$(PREFIX)/lib/pkcs11/libsunder_pkcs11.so

uninstall:
	$(SUDO) env DESTDIR=$(DESTDIR) scripts/uninstall $(PREFIX)

# What the libraries contain, for each of their packages.
LIBRARY_MATERIALS = target/packages/materials

# `sunder` is compiled twice: without the laboratory, and with it for the package sunder-lab.
deb: setup-deb
	mkdir -p target/packages
	rm -rf target/deb
	$(DIST) --profile dist --package sunder-cli --no-default-features --features services
	cp target/dist/sunder target/packages/sunder
	$(DIST) --profile dist --package sunder-cli --package sunder-transport-c --package sunder-pkcs11
	cp target/dist/sunder target/packages/sunder-lab
	cp target/dist/libsunder_transport_c.so target/dist/libsunder_transport_c.a \
		target/dist/libsunder_pkcs11.so target/packages
	PYO3_BUILD_EXTENSION_MODULE=1 $(DIST:%target=%target/python) --release \
		--manifest-path bindings/python/Cargo.toml
	cp target/python/release/libsunder_transport_python.so target/packages
	scripts/bill-of-materials target/materials
	rm -rf $(LIBRARY_MATERIALS)
	scripts/bill-of-materials $(LIBRARY_MATERIALS)/libsunder-pkcs11 sunder-pkcs11
	scripts/bill-of-materials $(LIBRARY_MATERIALS)/libsunder-transport0 sunder-transport-c
	cp -r $(LIBRARY_MATERIALS)/libsunder-transport0 $(LIBRARY_MATERIALS)/libsunder-transport-dev
	scripts/bill-of-materials $(LIBRARY_MATERIALS)/python3-sunder-transport \
		sunder-transport-python bindings/python/Cargo.toml
	debian/rules clean
	debian/rules binary
	debian/rules clean

deb-test: deb
	scripts/package-test

# A container image, of the program with all systems.
image: dist
	scripts/bill-of-materials target/materials
	$(SUDO) scripts/make-image target/dist/sunder

image-test: image
	$(SUDO) scripts/image-test

setup-deb:
	scripts/setup dh:debhelper dh_python3:dh-python python3

audit: setup-lint
	$(CARGO) deny --locked check advisories
