package telemetry

import (
	"os"
	"strconv"
	"unicode/utf8"

	"sluice/internal/config"
)

// Formatter writes formats. It is one worker's: its scratch is reused.
type Formatter struct {
	Hostname string
	Env      func(string) string
	scratch  []byte
}

// NewFormatter makes a Formatter; env answers %ENVIRONMENT(X)%.
func NewFormatter(env func(string) string) *Formatter {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	return &Formatter{Hostname: name, Env: env}
}

func (w *Formatter) environment(name string) string {
	if w.Env == nil {
		return ""
	}
	return w.Env(name)
}

// kind is the type of an operator's value.
type kind uint8

const (
	missing kind = iota
	text
	number
	raw // JSON already
)

// Text appends the text of f for r to dst.
func (w *Formatter) Text(dst []byte, f *config.Format, r *Record) []byte {
	if f == nil {
		return dst
	}
	return w.text(dst, f, r, f.OmitEmpty)
}

// Header appends the text of a header's value: what is missing leaves nothing.
func (w *Formatter) Header(dst []byte, f *config.Format, r *Record) []byte {
	return w.text(dst, f, r, true)
}

func (w *Formatter) text(dst []byte, f *config.Format, r *Record, omit bool) []byte {
	for i := range f.Items {
		it := &f.Items[i]
		if it.Op == "" {
			dst = append(dst, it.Text...)
			continue
		}
		start := len(dst)
		out, k := w.op(dst, it, r)
		if k == missing {
			dst = out[:start]
			if !omit {
				dst = append(dst, '-')
			}
			continue
		}
		dst = out
		if it.Max != 0 && len(dst)-start > max(0, it.Max) {
			dst = dst[:start+max(0, it.Max)]
		}
	}
	return dst
}

// JSON appends the object of j for r to dst.
func (w *Formatter) JSON(dst []byte, j *config.JSONFormat, r *Record) []byte {
	return w.object(dst, j, j.OmitEmpty, r)
}

// object appends an object; omit leaves out what is missing, at every depth.
func (w *Formatter) object(dst []byte, j *config.JSONFormat, omit bool, r *Record) []byte {
	dst = append(dst, '{')
	first := true
	for i, k := range j.Keys {
		if omit && w.omits(&j.Values[i], r) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(appendQuoted(dst, k), ':')
		dst = w.value(dst, &j.Values[i], omit, r)
	}
	return append(dst, '}')
}

// omits reports whether a leaf has no value, so that its key goes too.
func (w *Formatter) omits(v *config.JSONValue, r *Record) bool {
	if v.IsVal {
		return v.Const == nil
	}
	if v.Format == nil || len(v.Format.Items) != 1 || v.Format.Items[0].Op == "" {
		return false
	}
	out, k := w.op(w.scratch[:0], &v.Format.Items[0], r)
	w.scratch = out[:0]
	return k == missing
}

func (w *Formatter) value(dst []byte, v *config.JSONValue, omit bool, r *Record) []byte {
	switch {
	case v.IsVal:
		return AppendValue(dst, v.Const)
	case v.Object != nil:
		return w.object(dst, v.Object, omit, r)
	case v.List != nil:
		dst = append(dst, '[')
		n := 0
		for i := range v.List {
			if omit && w.omits(&v.List[i], r) {
				continue
			}
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = w.value(dst, &v.List[i], omit, r)
		}
		return append(dst, ']')
	}
	f := v.Format
	if f == nil {
		return append(dst, `""`...)
	}
	if len(f.Items) == 1 && f.Items[0].Op != "" {
		return w.typed(dst, &f.Items[0], r)
	}
	out := w.text(w.scratch[:0], f, r, omit)
	dst = appendQuoted(dst, out)
	w.scratch = out[:0]
	return dst
}

func (w *Formatter) typed(dst []byte, it *config.FormatItem, r *Record) []byte {
	out, k := w.op(w.scratch[:0], it, r)
	if k == text && it.Max != 0 && len(out) > max(0, it.Max) {
		out = out[:max(0, it.Max)]
	}
	switch k {
	case missing:
		dst = append(dst, "null"...)
	case text:
		dst = appendQuoted(dst, out)
	default:
		dst = append(dst, out...)
	}
	w.scratch = out[:0]
	return dst
}

// AppendValue appends a metadata value as JSON.
func AppendValue(dst []byte, v config.Value) []byte {
	switch v := v.(type) {
	case string:
		return appendQuoted(dst, v)
	case float64:
		return appendNumber(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case config.List:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendValue(dst, e)
		}
		return append(dst, ']')
	case config.Struct:
		return appendStruct(dst, v)
	}
	return append(dst, "null"...)
}

// appendNumber writes 15 digits, or 17 where those aren't the number, as protobuf
// does: an exponent begins there, so seconds since 1970 stand as they are.
func appendNumber(dst []byte, v float64) []byte {
	n := len(dst)
	dst = strconv.AppendFloat(dst, v, 'g', 15, 64)
	if back, err := strconv.ParseFloat(string(dst[n:]), 64); err == nil && back == v {
		return dst
	}
	return strconv.AppendFloat(dst[:n], v, 'g', 17, 64)
}

func appendStruct(dst []byte, s config.Struct) []byte {
	dst = append(dst, '{')
	for i, k := range sortedKeys(s) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, k), ':')
		dst = AppendValue(dst, s[k])
	}
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string. In text that isn't UTF-8 every byte
// above ASCII becomes an escape, so that a line stays JSON whatever came in.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	start := len(dst)
	plain := true
	dst = append(dst, '"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20 || c == 0x7f:
			dst = appendEscape(dst, c)
		default:
			plain = plain && c < utf8.RuneSelf
			dst = append(dst, c)
		}
	}
	if !plain && !utf8.Valid(dst[start:]) {
		dst = escapeHigh(dst, start)
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// escapeHigh replaces the bytes above ASCII from start on by escapes.
func escapeHigh(dst []byte, start int) []byte {
	text := append([]byte(nil), dst[start:]...)
	dst = dst[:start]
	for _, c := range text {
		if c >= utf8.RuneSelf {
			dst = appendEscape(dst, c)
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
