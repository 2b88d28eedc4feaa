package conform

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// wholeText is the size up to which collected bytes stand in an outcome as they
// are; longer ones are told by length and hash.
const wholeText = 2048

// object is a map of an outcome. Every value of an outcome is an object, []any,
// string, int, float64, bool or nil.
type object = map[string]any

// pair is one header or trailer field.
type pair struct{ name, value string }

// latin1 is collected bytes as text: one code point a byte.
func latin1(b []byte) string {
	ascii := true
	for _, c := range b {
		ascii = ascii && c < 0x80
	}
	if ascii {
		return string(b)
	}
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// rawBytes is authored text as bytes: one byte a code point up to 255, UTF-8
// when it holds a larger one.
func rawBytes(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 255 {
			return []byte(s)
		}
		out = append(out, byte(r))
	}
	return out
}

// text is collected bytes as they stand in an outcome.
func text(b []byte) any {
	if len(b) > wholeText {
		sum := sha256.Sum256(b)
		return object{"len": len(b), "sha256": hex.EncodeToString(sum[:])}
	}
	return latin1(b)
}

// sized is the body of `body_size: n`: digits counting up, so that a shift or a
// loss shows.
func sized(n int) []byte {
	var b bytes.Buffer
	b.Grow(n + 8)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%07d\n", i)
	}
	return b.Bytes()[:n]
}

// fieldValues joins all values of a header by a comma.
func fieldValues(fields []pair, name string) (string, bool) {
	var got []string
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			got = append(got, f.value)
		}
	}
	return strings.Join(got, ", "), len(got) > 0
}

// shownPairs is header fields as they stand in an outcome: lower-case, sorted,
// without those the test drops, what differs by nature masked.
func shownPairs(fields []pair, drop ...string) []any {
	out := make([]pair, 0, len(fields))
	for _, f := range fields {
		name := strings.ToLower(f.name)
		if !slices.Contains(drop, name) {
			out = append(out, pair{name, maskedHeader(name, f.value)})
		}
	}
	slices.SortFunc(out, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	shown := make([]any, len(out))
	for i, f := range out {
		shown[i] = []any{f.name, f.value}
	}
	return shown
}

// parseJSON reads JSON into outcome values: whole numbers are int.
func parseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more after the JSON value")
	}
	return plainNumbers(v), nil
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// dumped is a value as sorted JSON with a space after commas and colons and
// everything beyond ASCII escaped. The records were sorted by this text, and it
// is what an echoing upstream answers.
func dumped(v any) string {
	switch v := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, quoted(k)+": "+dumped(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = dumped(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return quoted(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case strings.ContainsRune("\n\r\t\b\f", r):
			b.WriteByte('\\')
			b.WriteByte(map[rune]byte{'\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'}[r])
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		case r == 0x7f:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
