//go:build tools

// Package tools names the command that scripts/build-cometbft builds, so that go.sum has its
// checksums.
package tools

import _ "github.com/cometbft/cometbft/cmd/cometbft"
