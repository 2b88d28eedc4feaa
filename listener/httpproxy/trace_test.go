package httpproxy

import (
	"testing"

	"sluice/internal/httpmsg"
)

const (
	traceHigh, traceLow = 0x463ac35c9f6413ad, 0x48485a3953bb6124
	callerID, aboveID   = 0xa2fb4a1d1a96d312, 0x05e3ac9a4f6e3b90
	trace32             = "463ac35c9f6413ad48485a3953bb6124"
	trace16             = "48485a3953bb6124"
	span                = "a2fb4a1d1a96d312"
	parent              = "05e3ac9a4f6e3b90"
)

func headOf(fields ...[2]string) *httpmsg.Head {
	h := &httpmsg.Head{}
	for _, f := range fields {
		h.Add([]byte(f[0]), []byte(f[1]))
	}
	return h
}

func TestB3(t *testing.T) {
	long := traceContext{high: traceHigh, low: traceLow, span: callerID, found: true}
	decided := func(c traceContext, sampled bool) traceContext {
		c.decided, c.sampled = true, sampled
		return c
	}
	withParent := long
	withParent.parent = aboveID
	for _, c := range []struct {
		rule   string
		fields [][2]string
		want   traceContext
		bad    bool
	}{
		{"none", nil, traceContext{}, false},
		{"both identifiers make a context", [][2]string{{"x-b3-traceid", trace32}, {"x-b3-spanid", span}}, long, false},
		{"64 bits do", [][2]string{{"x-b3-traceid", trace16}, {"x-b3-spanid", span}}, traceContext{low: traceLow, span: callerID, found: true}, false},
		{"a trace alone is none", [][2]string{{"x-b3-traceid", trace32}}, traceContext{}, false},
		{"sampled decides without identifiers", [][2]string{{"x-b3-sampled", "0"}}, decided(traceContext{}, false), false},
		{"true is an old 1", [][2]string{{"x-b3-sampled", "true"}}, decided(traceContext{}, true), false},
		{"debug is sampled", [][2]string{{"x-b3-flags", "1"}}, decided(traceContext{}, true), false},
		{"a parent", [][2]string{{"x-b3-traceid", trace32}, {"x-b3-spanid", span}, {"x-b3-parentspanid", parent}}, withParent, false},
		{"a short trace is bad", [][2]string{{"x-b3-traceid", "463ac"}, {"x-b3-spanid", span}}, traceContext{}, true},
		{"a trace of zeros is bad", [][2]string{{"x-b3-traceid", "00000000000000000000000000000000"}, {"x-b3-spanid", span}}, traceContext{}, true},
		{"a sign is no digit", [][2]string{{"x-b3-traceid", trace32}, {"x-b3-spanid", "+2fb4a1d1a96d312"}}, traceContext{}, true},
		{"a bad parent is bad", [][2]string{{"x-b3-traceid", trace32}, {"x-b3-spanid", span}, {"x-b3-parentspanid", "x"}}, traceContext{}, true},
		{"single: identifiers", [][2]string{{"b3", trace32 + "-" + span}}, long, false},
		{"single: sampled", [][2]string{{"b3", trace32 + "-" + span + "-1"}}, decided(long, true), false},
		{"single: debug", [][2]string{{"b3", trace32 + "-" + span + "-d"}}, decided(long, true), false},
		{"single: parent", [][2]string{{"b3", trace32 + "-" + span + "-0-" + parent}}, decided(withParent, false), false},
		{"single: a decision alone", [][2]string{{"b3", "0"}}, decided(traceContext{}, false), false},
		{"single goes before the longer form", [][2]string{{"b3", "0"}, {"x-b3-traceid", trace32}, {"x-b3-spanid", span}}, decided(traceContext{}, false), false},
		{"single: another decision is bad", [][2]string{{"b3", "2"}}, traceContext{}, true},
		{"single: one part is bad", [][2]string{{"b3", trace32}}, traceContext{}, true},
		{"single: five parts are bad", [][2]string{{"b3", trace32 + "-" + span + "-1-" + parent + "-x"}}, traceContext{}, true},
	} {
		got, ok := readB3(headOf(c.fields...))
		if ok == c.bad || ok && got != c.want {
			t.Errorf("%s: %+v %v, want %+v", c.rule, got, ok, c.want)
		}
	}
}

func TestTraceparent(t *testing.T) {
	none := traceContext{decided: true, sampled: true}
	for _, c := range []struct {
		rule, value string
		want        traceContext
	}{
		{"sampled", "00-" + trace32 + "-" + span + "-01", traceContext{high: traceHigh, low: traceLow, span: callerID, found: true, decided: true, sampled: true}},
		{"not sampled", "00-" + trace32 + "-" + span + "-00", traceContext{high: traceHigh, low: traceLow, span: callerID, found: true, decided: true}},
		{"a later version is read as far as it is known", "01-" + trace32 + "-" + span + "-00-more", traceContext{high: traceHigh, low: traceLow, span: callerID, found: true, decided: true}},
		{"this version has no more", "00-" + trace32 + "-" + span + "-00-more", none},
		{"a later version is divided", "01-" + trace32 + "-" + span + "-001", none},
		{"ff is no version", "ff-" + trace32 + "-" + span + "-01", none},
		{"a trace of zeros is none", "00-00000000000000000000000000000000-" + span + "-01", none},
		{"what breaks off is none", "00-" + trace32 + "-" + span, none},
		{"what isn't hexadecimal is none", "00-" + trace32 + "-" + span + "-0x", none},
	} {
		if got := readTraceparent(headOf([2]string{"traceparent", c.value}), none); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.rule, got, c.want)
		}
	}
}

func FuzzTraceContext(f *testing.F) {
	f.Add(trace32+"-"+span+"-1-"+parent, trace32, span, "00-"+trace32+"-"+span+"-01")
	f.Add("d", trace16, span, "")
	f.Fuzz(func(t *testing.T, single, trace, span, w3c string) {
		for _, h := range []*httpmsg.Head{headOf([2]string{"b3", single}), headOf([2]string{"x-b3-traceid", trace}, [2]string{"x-b3-spanid", span})} {
			if c, ok := readB3(h); ok && c.found && c.high|c.low == 0 {
				t.Errorf("%q %q %q: a trace without an identifier", single, trace, span)
			}
		}
		if c := readTraceparent(headOf([2]string{"traceparent", w3c}), traceContext{}); c.found && (c.high|c.low == 0 || !c.decided) {
			t.Errorf("%q: %+v", w3c, c)
		}
	})
}
