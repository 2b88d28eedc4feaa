package extauthz

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// of writes a message of fields: a message, text or a number each.
func of(parts ...any) []byte {
	var m message
	for i := 0; i < len(parts); i += 2 {
		n := protowire.Number(parts[i].(int))
		switch v := parts[i+1].(type) {
		case int:
			m.number(n, uint64(v))
		case string:
			m.bytes(n, []byte(v))
		case []byte:
			m.bytes(n, v)
		}
	}
	return m
}

func pairOf(name, value string) []byte { return of(1, name, 2, value) }

func option(name, value string, rest ...any) []byte {
	return of(append([]any{1, pairOf(name, value)}, rest...)...)
}

func TestReadVerdict(t *testing.T) {
	status := of(1, 7)
	for _, c := range []struct {
		rule  string
		bytes []byte
		want  outcome
	}{
		{"nothing is a yes", nil, outcome{kind: allowed}},
		{"so is status 0", of(1, of()), outcome{kind: allowed}},
		{"another status is a no", of(1, status), outcome{kind: denied, status: 403}},
		{"a no has its own code, headers and content", of(1, status, 2, of(1, of(1, 401), 2, option("X-Why", "a"), 3, "no")),
			outcome{kind: denied, status: 401, body: "no", client: []edit{{"x-why", "a", appendLine}}}},
		{"a header replaces", of(3, of(2, option("a", "1"))), outcome{kind: allowed, request: []edit{{"a", "1", overwrite}}}},
		{"whatever its append_action", of(3, of(2, option("a", "1", 3, 1))), outcome{kind: allowed, request: []edit{{"a", "1", overwrite}}}},
		{"one with append joins", of(3, of(2, option("a", "1", 2, of(1, 1)))), outcome{kind: allowed, request: []edit{{"a", "1", appendIfExists}}}},
		{"a refusal's does nothing", of(1, status, 2, of(2, option("a", "1", 2, of(1, 1)))), outcome{kind: denied, status: 403}},
		{"a response's header is one more", of(3, of(6, option("a", "1"))), outcome{kind: allowed, client: []edit{{"a", "1", appendLine}}}},
		{"so is one with append", of(3, of(6, option("a", "1", 2, of(1, 1), 3, 2))), outcome{kind: allowed, client: []edit{{"a", "1", appendLine}}}},
		{"and one without append replaces", of(3, of(6, option("a", "1", 2, of()))), outcome{kind: allowed, client: []edit{{"a", "1", overwrite}}}},
		{"a raw value is a value", of(3, of(2, of(1, of(1, "a", 3, "\xff")))), outcome{kind: allowed, request: []edit{{"a", "\xff", overwrite}}}},
		{"a response's header may stand where none is", of(3, of(6, option("a", "1", 3, 1))), outcome{kind: allowed, client: []edit{{"a", "1", addIfAbsent}}}},
		{"or only where one is", of(3, of(6, option("a", "1", 3, 3))), outcome{kind: allowed, client: []edit{{"a", "1", overwriteIfExists}}}},
		{"headers go", of(3, of(5, "Cookie")), outcome{kind: allowed, remove: []string{"cookie"}}},
		{"parameters go", of(3, of(8, "q")), outcome{kind: allowed, query: []config.QueryMutation{{Remove: "q"}}}},
		{"metadata is told", of(4, telemetry.AppendStruct(nil, config.Struct{"k": "v"})), outcome{kind: allowed, metadata: config.Struct{"k": "v"}}},
		{"that of the yes goes before", of(3, of(3, telemetry.AppendStruct(nil, config.Struct{"k": "in"})), 4, telemetry.AppendStruct(nil, config.Struct{"k": "out"})),
			outcome{kind: allowed, metadata: config.Struct{"k": "in"}}},
		{"unknown fields are passed over", of(99, "x", 1, of(2, "said", 1, 0)), outcome{kind: allowed}},
		{"a service that says it failed has", of(5, of()), outcome{}},
		{"a status that is a number is no answer", of(1, 7), outcome{}},
		{"nor one that ends in the middle", []byte{1<<3 | 2, 9, 1}, outcome{}},
		{"nor a code that HTTP hasn't", of(1, status, 2, of(1, of(1, 42))), outcome{}},
		{"nor an action that isn't one", of(3, of(2, option("a", "1", 3, 9))), outcome{}},
	} {
		if got := readVerdict(c.bytes); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.rule, got, c.want)
		}
	}
}

func FuzzReadVerdict(f *testing.F) {
	f.Add(of(1, of(1, 7), 2, of(1, of(1, 401), 2, option("a", "b"), 3, "no")))
	f.Add(of(3, of(2, option("a", "b", 2, of(1, 1), 3, 2), 5, "c", 7, pairOf("q", "1"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o := readVerdict(b); o.kind == denied && (o.status < 200 || o.status > 599) {
			t.Fatalf("refused with %d", o.status)
		}
	})
}
