package jwks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"sluice/internal/config"
)

// maxDepth bounds nesting, as Envoy does.
const maxDepth = 100

var (
	errSyntax    = errors.New("not JSON")
	errDuplicate = errors.New("a name twice in one object")
	errDeep      = errors.New("nested too deeply")
	errNoObject  = errors.New("not an object")
)

// Object reads one JSON object and nothing else. A name that is there twice, and
// nesting deeper than a hundred levels, are errors: who signs a token and who reads it must
// not see different ones.
func Object(text []byte) (config.Struct, error) {
	if !utf8.Valid(text) || halves(text) {
		return nil, errSyntax
	}
	r := reader{json.NewDecoder(bytes.NewReader(text))}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errSyntax
	}
	s, ok := v.(config.Struct)
	if !ok {
		return nil, errNoObject
	}
	return s, nil
}

// halves reports an escape that is one half of a surrogate pair without the other.
// encoding/json takes all of these for the same letter.
func halves(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return false
		}
		text = text[i:]
		if !utf16.IsSurrogate(escaped(text)) {
			text = text[2:]
			continue
		}
		if len(text) < 12 || utf16.DecodeRune(escaped(text), escaped(text[6:])) == utf8.RuneError {
			return true
		}
		text = text[12:]
	}
}

// escaped gives what \uXXXX at the start of text stands for, 0 for anything else.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

type reader struct{ dec *json.Decoder }

func (r *reader) value(depth int) (config.Value, error) {
	t, err := r.dec.Token()
	if err != nil {
		return nil, errSyntax
	}
	d, ok := t.(json.Delim)
	switch {
	case !ok:
		return t, nil // string, float64, bool or nil
	case depth == maxDepth:
		return nil, errDeep
	case d == '{':
		return r.object(depth + 1)
	case d == '[':
		return r.list(depth + 1)
	}
	return nil, errSyntax
}

func (r *reader) object(depth int) (config.Value, error) {
	out := config.Struct{}
	for r.dec.More() {
		t, err := r.dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errSyntax
		}
		if _, twice := out[name]; twice {
			return nil, errDuplicate
		}
		if out[name], err = r.value(depth); err != nil {
			return nil, err
		}
	}
	return out, r.end('}')
}

func (r *reader) list(depth int) (config.Value, error) {
	out := config.List{}
	for r.dec.More() {
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, r.end(']')
}

func (r *reader) end(want json.Delim) error {
	if t, err := r.dec.Token(); err != nil || t != want {
		return errSyntax
	}
	return nil
}
