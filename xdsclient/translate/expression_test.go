package translate

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
)

// parseExpression parses an expression; problem is what is wrong with it.
func parseExpression(text string) (e *config.Expression, problem string) {
	s := Default().scope("")
	e = s.expression(text)
	if err := s.out.err(); err != nil {
		return nil, err.Error()
	}
	return e, ""
}

func TestExpressions(t *testing.T) {
	r := &telemetry.Record{Conn: &telemetry.Conn{}, Request: &httpmsg.Head{}, Code: 404, BytesIn: 3, Protocol: telemetry.HTTP2}
	r.Request.SetMethod([]byte("POST"))
	r.Request.SetPath([]byte("/a/b?x=1"))
	r.Request.AddName("x-n", []byte("7"))
	r.Request.AddName("x-two", []byte("a"))
	r.Request.AddName("x-two", []byte("b"))
	r.Flags.Set(telemetry.NR)
	r.Dynamic.Set("ns", "k", "v")
	r.Dynamic.Set("ns", "list", config.List{"p", 2.0})
	w := &telemetry.Writer{Format: telemetry.NewFormatter(nil)}
	for text, want := range map[string]bool{
		// operators
		"true": true, "false": false, "1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3": true, "1 == 1.0": true, "'1' == 1": false, "'1' != 1": true,
		"1 + 2 * 3 == 7": true, "(1 + 2) * 3 == 9": true, "7 / 2 == 3": true, "7.0 / 2.0 == 3.5": true, "7 % 4 == 3": true, "1 / 0 == 1": false,
		"-(-2) == 2": true, "!false && !!true": true, "1 == 2 ? false : true": true, "'a' < 'b'": true, "1 < 'b'": false, "1 - 2 - 3 == -4": true,
		"9007199254740993 == 9007199254740992": false, "9007199254740993 > 9007199254740992": true, "9007199254740993 in [9007199254740992]": false,
		// what doesn't fit into 64 bits is an error
		"9223372036854775807 + 1 < 0": false, "9223372036854775807 + 1 > 0": false, "-9223372036854775807 - 2 > 0": false, "9223372036854775807 + -7 > 0": true,
		"4611686018427387904 * 2 < 0": false, "-4611686018427387904 * 2 < 0": true, "4611686018427387904 * -4 == 0": false, "-3 * -2 == 6 && 0 * -1 == 0": true,
		"(-9223372036854775807 - 1) / -1 < 0": false, "(-9223372036854775807 - 1) % -1 == 0": false, "-(-9223372036854775807 - 1) < 0": false,
		// errors and what absorbs them
		"request.headers['no'] == 'x'": false, "request.headers['no'] != 'x'": false, "request.headers['no'] == 'x' || true": true,
		"true || request.headers['no'] == 'x'": true, "!(false && request.headers['no'] == 'x')": true, "!(request.headers['no'] == 'x')": false,
		"request.nope == 'x'": false, "1 + 1": false, "'text'": false,
		// texts
		`"a\"b" == 'a"b'`: true, `r'\d' == '\\d'`: true, `'''it's''' == "it's"`: true, `'\u00e9\n' == "\xe9\n"`: true, "size('h\u00e9') == 2": true,
		"request.path.startsWith('/a') && request.path.endsWith('=1') && request.path.contains('b?')": true, "request.url_path == '/a/b'": true,
		"request.query == 'x=1'": true, "request.path.matches('^/[a-z]/b')": true, "request.path.matches('^/b')": false,
		// members
		"'x-n' in request.headers && !('x-m' in request.headers)": true, "request.headers['X-Two'] == 'a,b'": true, "has(request.headers.x)": false,
		"has(metadata.filter_metadata.ns)": true, "metadata.filter_metadata['ns']['k'] == 'v'": true, "metadata.filter_metadata.ns.k == 'v'": true,
		"2 in metadata.filter_metadata.ns.list": true, "metadata.filter_metadata.ns.list[0] == 'p'": true, "metadata.filter_metadata.ns.list[2] == 'p'": false,
		"size(metadata.filter_metadata.ns.list) == 2": true, "request.method in ['PUT', 'POST']": true, "['a', 'b'][1] == 'b'": true,
		// numbers
		"response.code >= 400 && response.code < 500": true, "response.flags == 256": true, "int(request.headers['x-n']) * 2 == 14": true,
		"request.size == 3u && 0x10 == 16 && 1e3 == 1000": true, "connection.mtls": false, "request.protocol == 'HTTP/2'": true,
	} {
		e, problem := parseExpression(text)
		if problem != "" {
			t.Errorf("%s: %s", text, problem)
			continue
		}
		if got := w.Holds(e, r); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Calls of has() nest as deep as expressions may, and each level costs as much as
// one: evaluating its operand twice would double the cost with each.
func TestNestedHasCostsWhatItIsLong(t *testing.T) {
	text := "request.headers"
	for range 14 {
		text = "(has(" + text + ".x) ? request.headers : request.headers)"
	}
	e, problem := parseExpression("has(" + text + ".x)")
	if problem != "" {
		t.Fatal(problem)
	}
	w, r := &telemetry.Writer{Format: telemetry.NewFormatter(nil)}, &telemetry.Record{Conn: &telemetry.Conn{}, Request: &httpmsg.Head{}}
	begin := time.Now()
	for range 100 {
		w.Holds(e, r)
	}
	if took := time.Since(begin); took > 100*time.Millisecond {
		t.Errorf("100 evaluations took %s", took)
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "unexpected",
		"1 ==":                         "unexpected",
		"1 == 2)":                      `unexpected ")"`,
		"(1":                           `")" expected`,
		"'open":                        `unexpected "'open"`,
		"a # b":                        "unexpected",
		"1.2.3":                        "is no number",
		"request":                      `"." expected`,
		"request.duration > 1":         "not supported yet: the attribute request.duration",
		"filter_state['x'] == 'y'":     "not supported yet: the attribute filter_state",
		"request.path.lowerAscii()":    "not supported yet: the method lowerAscii",
		"[1].exists(x, x == 1)":        "",
		"string(1) == '1'":             "not supported yet: the function string",
		"has(request.headers['x'])":    "has() wants a member",
		"request.path.matches('(')":    "invalid regex",
		strings.Repeat("(", 100) + "1": "nested more than 64 levels",
		strings.Repeat("!", 100) + "1": "nested more than 64 levels",
		"1" + strings.Repeat("+1", 99): "operators in a row",
	} {
		if _, problem := parseExpression(text); problem == "" || !strings.Contains(problem, want) {
			t.Errorf("%q: %q, want %q", text, problem, want)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, text := range []string{"request.headers['a'] in ['b'] && -1.5e3 < size(r'x') ? !true : has(a.b.c)", `'\x41\u00e9'.matches("""a""")`} {
		f.Add(text)
	}
	r := &telemetry.Record{Conn: &telemetry.Conn{}, Request: &httpmsg.Head{}}
	w := &telemetry.Writer{Format: telemetry.NewFormatter(nil)}
	f.Fuzz(func(_ *testing.T, text string) {
		if e, problem := parseExpression(text); problem == "" {
			w.Holds(e, r)
		}
	})
}

func TestExpressionsDoNotAllocate(t *testing.T) {
	e, _ := parseExpression("response.code >= 400 || 'x-n' in request.headers && request.path.startsWith('/a') && source.address != '' && request.method in ['GET']")
	r := &telemetry.Record{Conn: &telemetry.Conn{}, Request: &httpmsg.Head{}, Code: 200}
	r.Request.SetMethod([]byte("GET"))
	r.Request.SetPath([]byte("/a"))
	r.Request.AddName("x-n", []byte("7"))
	w := &telemetry.Writer{Format: telemetry.NewFormatter(nil)}
	if n := testing.AllocsPerRun(100, func() { w.Holds(e, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
