package config

import (
	"encoding/pem"
	"strings"
	"testing"
)

func TestPEMBlocks(t *testing.T) {
	block := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat("certificate", 20))}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}))
	for _, c := range []struct {
		rule, text string
		want       int // blocks; -1: an error
	}{
		{"nothing", "", 0},
		{"text without blocks", "no PEM\n", 0},
		{"one block", block, 1},
		{"several, of any type", block + key + block, 3},
		{"words between them", "# root one\n" + block + "\n\n# root two\n" + block, 2},
		{"lines that end in CR LF", strings.ReplaceAll(block+block, "\n", "\r\n"), 2},
		{"no line end at the end", strings.TrimSpace(block), 1},
		{"the last is cut in its content", block + block[:100], -1},
		{"the last is cut in its end", block + strings.TrimSpace(block)[:len(block)-10], -1},
		{"the first is cut", block[:100] + "\n" + block, -1},
		{"one in the middle has no base64", block + "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n" + block, -1},
		{"another end", strings.Replace(block, "END CERTIFICATE", "END KEY", 1), -1},
	} {
		got, err := PEMBlocks([]byte(c.text))
		if (err != nil) != (c.want < 0) || err == nil && len(got) != c.want {
			t.Errorf("%s: %d blocks, %v; want %d", c.rule, len(got), err, c.want)
		}
	}
}
