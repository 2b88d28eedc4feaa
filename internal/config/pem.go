package config

import (
	"encoding/pem"
	"errors"
	"strings"
)

var errCutPEM = errors.New("a PEM block is cut short or malformed")

// PEMBlocks reads every block of a PEM text. One that can't be read is an error:
// encoding/pem passes over it, and a file that is being written would be taken for
// a shorter one.
func PEMBlocks(text []byte) ([]*pem.Block, error) {
	var out []*pem.Block
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		out = append(out, b)
	}
	if len(out) != strings.Count("\n"+string(text), "\n-----BEGIN ") {
		return nil, errCutPEM
	}
	return out, nil
}
