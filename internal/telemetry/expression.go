package telemetry

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// value is what an expression comes to. The zero value is an error: an attribute
// that is absent, or an operation on what it isn't for. Errors spread, but for
// && and ||, whose other side may decide.
type value struct {
	kind valueKind
	n    int64
	f    float64
	text []byte
	head *httpmsg.Head
	list []config.Expression
	any  config.Value
}

type valueKind uint8

const (
	none valueKind = iota
	null
	boolean
	whole   // n
	decimal // f
	words   // text
	heads   // head
	items   // list, evaluated when looked at
	elems   // any, a config.List
	members // any, a config.Struct
	spaces  // any, config.Metadata
)

func truth(b bool) value {
	if b {
		return value{kind: boolean, n: 1}
	}
	return value{kind: boolean}
}

func (v *value) holds() bool { return v.kind == boolean && v.n != 0 }

// Holds reports whether e is true of r; an error isn't.
func (w *Writer) Holds(e *config.Expression, r *Record) bool {
	if e == nil {
		return false
	}
	w.scratch = w.scratch[:0]
	v := w.eval(e, r)
	return v.holds()
}

func (w *Writer) eval(e *config.Expression, r *Record) value {
	switch e.Op {
	case config.ExprNull:
		return value{kind: null}
	case config.ExprBool:
		return value{kind: boolean, n: e.Int}
	case config.ExprInt:
		return value{kind: whole, n: e.Int}
	case config.ExprFloat:
		return value{kind: decimal, f: e.Float}
	case config.ExprText:
		return value{kind: words, text: e.Text}
	case config.ExprList:
		return value{kind: items, list: e.Sub}
	case config.ExprAnd, config.ExprOr:
		return w.either(e, r)
	case config.ExprChoose:
		switch v := w.eval(&e.Sub[0], r); {
		case v.kind != boolean:
			return value{}
		case v.holds():
			return w.eval(&e.Sub[1], r)
		}
		return w.eval(&e.Sub[2], r)
	case config.ExprHas:
		return w.has(&e.Sub[0], r)
	}
	if len(e.Sub) == 0 {
		return w.attribute(e, r)
	}
	a := w.eval(&e.Sub[0], r)
	if len(e.Sub) == 1 {
		return unary(e, a)
	}
	b := w.eval(&e.Sub[1], r)
	if e.Op == config.ExprIn {
		return w.in(a, b, r)
	}
	if e.Op == config.ExprIndex {
		return w.index(a, b, r)
	}
	return combine(e.Op, a, b)
}

// attribute gives an attribute of the request.
func (w *Writer) attribute(e *config.Expression, r *Record) value {
	switch e.Op {
	case config.ExprRequestHeaders:
		return headers(r.Request)
	case config.ExprResponseHeaders:
		return headers(r.Response)
	case config.ExprResponseTrailers:
		return headers(r.Trailers)
	case config.ExprDynamic:
		return value{kind: spaces, any: r.Dynamic}
	case config.ExprMTLS:
		return truth(r.Conn.TLS != nil && r.Conn.TLS.Presented)
	case config.ExprFlags:
		return value{kind: whole, n: r.Flags.bits()}
	case config.ExprQuery:
		return query(r.Request)
	case config.ExprError:
		return value{}
	}
	return w.operator(e, r)
}

// operator gives an attribute for which there is a log operator.
func (w *Writer) operator(e *config.Expression, r *Record) value {
	start := len(w.scratch)
	var k kind
	w.scratch, k = w.Format.op(w.scratch, &e.Format, r)
	text := w.scratch[start:len(w.scratch):len(w.scratch)]
	switch op := e.Format.Op; {
	case op == "REQUESTED_SERVER_NAME": // there without a name too
		return value{kind: words, text: text}
	case k == missing, op == "RESPONSE_CODE" && r.Code == 0:
		return value{}
	case e.Op == config.ExprNumber: // a port follows its host
		return parsed(text[bytes.LastIndexByte(text, ':')+1:])
	}
	return value{kind: words, text: text}
}

func query(h *httpmsg.Head) value {
	if h == nil {
		return value{}
	}
	_, q, _ := bytes.Cut(h.Path(), []byte{'?'})
	return value{kind: words, text: q}
}

func headers(h *httpmsg.Head) value {
	if h == nil {
		return value{}
	}
	return value{kind: heads, head: h}
}

// bits is response.flags: a bit for each, in Envoy's order.
func (f *Flags) bits() (n int64) {
	for _, x := range f.list[:f.n] {
		n |= 1 << (x - 1)
	}
	return n
}

func parsed(text []byte) value {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return value{}
	}
	return value{kind: whole, n: n}
}

// either is && or ||: the side that decides alone does, whatever the other is.
func (w *Writer) either(e *config.Expression, r *Record) value {
	decides := e.Op == config.ExprOr
	a := w.eval(&e.Sub[0], r)
	if a.kind == boolean && a.holds() == decides {
		return a
	}
	b := w.eval(&e.Sub[1], r)
	switch {
	case b.kind == boolean && b.holds() == decides:
		return b
	case a.kind != boolean || b.kind != boolean:
		return value{}
	}
	return truth(!decides)
}

// has reports whether a member is there. What has the member is evaluated once:
// calls of has may nest.
func (w *Writer) has(e *config.Expression, r *Record) value {
	if e.Op != config.ExprIndex {
		v := w.eval(e, r)
		return truth(v.kind != none)
	}
	of := w.eval(&e.Sub[0], r)
	if of.kind == none {
		return value{}
	}
	v := w.index(of, w.eval(&e.Sub[1], r), r)
	return truth(v.kind != none)
}

func unary(e *config.Expression, a value) value {
	switch {
	case e.Op == config.ExprNot && a.kind == boolean:
		return truth(!a.holds())
	case e.Op == config.ExprMinus && a.kind == whole && a.n != math.MinInt64:
		return value{kind: whole, n: -a.n}
	case e.Op == config.ExprMinus && a.kind == decimal:
		return value{kind: decimal, f: -a.f}
	case e.Op == config.ExprSize:
		return size(a)
	case e.Op == config.ExprMatches && a.kind == words && e.Regex != nil:
		return truth(e.Regex.Match(a.text))
	case e.Op == config.ExprToInt:
		return toInt(a)
	}
	return value{}
}

func size(a value) value {
	n := 0
	switch a.kind {
	case words:
		n = utf8.RuneCount(a.text)
	case items:
		n = len(a.list)
	case elems:
		n = len(a.any.(config.List))
	case members:
		n = len(a.any.(config.Struct))
	default:
		return value{}
	}
	return value{kind: whole, n: int64(n)}
}

func toInt(a value) value {
	switch {
	case a.kind == whole:
		return a
	case a.kind == decimal && math.Abs(a.f) < 1<<63:
		return value{kind: whole, n: int64(a.f)}
	case a.kind == words:
		return parsed(a.text)
	}
	return value{}
}

// in looks for a in a list, or as a key.
func (w *Writer) in(a, b value, r *Record) value {
	switch b.kind {
	case items:
		for i := range b.list {
			if v := w.eval(&b.list[i], r); equal(a, v) {
				return truth(true)
			}
		}
		return truth(false)
	case elems:
		for _, x := range b.any.(config.List) {
			if equal(a, of(x)) {
				return truth(true)
			}
		}
		return truth(false)
	case heads, members, spaces:
		v := w.index(b, a, r)
		return truth(v.kind != none)
	}
	return value{}
}

// index is a[b].
func (w *Writer) index(a, b value, r *Record) value {
	switch {
	case a.kind == heads && b.kind == words:
		return w.headerOf(a.head, b.text)
	case a.kind == members && b.kind == words:
		if v, ok := a.any.(config.Struct)[string(b.text)]; ok {
			return of(v)
		}
	case a.kind == spaces && b.kind == words:
		if v, ok := a.any.(config.Metadata)[string(b.text)]; ok {
			return value{kind: members, any: v}
		}
	case a.kind == items && b.kind == whole && b.n >= 0 && b.n < int64(len(a.list)):
		return w.eval(&a.list[b.n], r)
	case a.kind == elems && b.kind == whole && b.n >= 0 && b.n < int64(len(a.any.(config.List))):
		return of(a.any.(config.List)[b.n])
	}
	return value{}
}

// headerOf gives all lines of a header, joined.
func (w *Writer) headerOf(h *httpmsg.Head, name []byte) value {
	if len(name) > 0 && name[0] == ':' || string(name) == "host" {
		if v, ok := Header(h, string(name)); ok {
			return value{kind: words, text: v}
		}
		return value{}
	}
	v := value{}
	for i := range h.Len() {
		_, k, line, live := h.Field(i)
		switch {
		case !live || !bytes.EqualFold(k, name):
		case v.kind == none:
			v = value{kind: words, text: line}
		default:
			start := len(w.scratch)
			w.scratch = append(append(append(w.scratch, v.text...), ','), line...)
			v.text = w.scratch[start:]
		}
	}
	return v
}

// of turns a metadata value into one of an expression.
func of(v config.Value) value {
	switch x := v.(type) {
	case nil:
		return value{kind: null}
	case string:
		return value{kind: words, text: []byte(x)}
	case float64:
		return value{kind: decimal, f: x}
	case bool:
		return truth(x)
	case config.List:
		return value{kind: elems, any: x}
	case config.Struct:
		return value{kind: members, any: x}
	}
	return value{}
}

func combine(op config.ExpressionOp, a, b value) value {
	switch {
	case a.kind == none || b.kind == none:
		return value{}
	case op == config.ExprEqual:
		return truth(equal(a, b))
	case op == config.ExprNotEqual:
		return truth(!equal(a, b))
	case a.kind == words && b.kind == words:
		return ofTexts(op, a.text, b.text)
	case op >= config.ExprLess && op <= config.ExprGreaterEqual:
		return ordered(op, a, b)
	case a.kind == whole && b.kind == whole:
		return ofWholes(op, a.n, b.n)
	case a.kind == decimal && b.kind == decimal:
		return ofDecimals(op, a.f, b.f)
	}
	return value{}
}

// equal compares values of any kind: those of different kinds differ, but numbers.
func equal(a, b value) bool {
	if a.kind == whole && b.kind == whole {
		return a.n == b.n
	}
	if x, ok := a.number(); ok {
		y, both := b.number()
		return both && x == y
	}
	return a.kind == b.kind && (a.kind == null || a.kind == boolean && a.n == b.n || a.kind == words && bytes.Equal(a.text, b.text))
}

func (v *value) number() (float64, bool) {
	if v.kind == whole {
		return float64(v.n), true
	}
	return v.f, v.kind == decimal
}

func ofTexts(op config.ExpressionOp, a, b []byte) value {
	switch op {
	case config.ExprStartsWith:
		return truth(bytes.HasPrefix(a, b))
	case config.ExprEndsWith:
		return truth(bytes.HasSuffix(a, b))
	case config.ExprContains:
		return truth(bytes.Contains(a, b))
	}
	return compared(op, bytes.Compare(a, b))
}

func ordered(op config.ExpressionOp, a, b value) value {
	if a.kind == whole && b.kind == whole {
		return compared(op, cmp.Compare(a.n, b.n))
	}
	x, first := a.number()
	y, second := b.number()
	switch {
	case !first || !second:
		return value{}
	case x < y:
		return compared(op, -1)
	case x > y:
		return compared(op, 1)
	}
	return compared(op, 0)
}

func compared(op config.ExpressionOp, c int) value {
	switch op {
	case config.ExprLess:
		return truth(c < 0)
	case config.ExprLessEqual:
		return truth(c <= 0)
	case config.ExprGreater:
		return truth(c > 0)
	case config.ExprGreaterEqual:
		return truth(c >= 0)
	}
	return value{}
}

// ofWholes computes in 64 bits; a result that needs more is an error, as in CEL.
func ofWholes(op config.ExpressionOp, a, b int64) value {
	n, ok := int64(0), false
	switch {
	case op == config.ExprAdd:
		n, ok = a+b, (a+b > a) == (b > 0)
	case op == config.ExprSubtract:
		n, ok = a-b, (a-b < a) == (b > 0)
	case op == config.ExprMultiply:
		high, low := bits.Mul64(magnitude(a), magnitude(b))
		n, ok = a*b, high == 0 && (low < 1<<63 || low == 1<<63 && (a < 0) != (b < 0))
	case b == 0 || a == math.MinInt64 && b == -1:
	case op == config.ExprDivide:
		n, ok = a/b, true
	case op == config.ExprModulo:
		n, ok = a%b, true
	}
	if !ok {
		return value{}
	}
	return value{kind: whole, n: n}
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func ofDecimals(op config.ExpressionOp, a, b float64) value {
	switch op {
	case config.ExprAdd:
		return value{kind: decimal, f: a + b}
	case config.ExprSubtract:
		return value{kind: decimal, f: a - b}
	case config.ExprMultiply:
		return value{kind: decimal, f: a * b}
	case config.ExprDivide:
		return value{kind: decimal, f: a / b}
	}
	return value{}
}
