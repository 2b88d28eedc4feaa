package translate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// notYet are the extensions in the corpus that are refused, each with how many
// resources it costs. A refusal of anything else fails the test, and so does an
// entry that refuses nothing any more.
var notYet = []string{
	"envoy.extensions.filters.http.lua.v3.Lua",
	"envoy.extensions.filters.http.wasm.v3.Wasm",
	"envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig",
	"envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig",
	"envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig",
	"envoy.extensions.filters.http.set_filter_state.v3.Config",
}

// corpusResource is one resource of the corpus as bytes.
type corpusResource struct {
	file, url string
	body      []byte
}

// corpus reads what a real istiod 1.31 sent.
func corpus(tb testing.TB) []corpusResource {
	tb.Helper()
	files, err := filepath.Glob("testdata/istiod-*/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no corpus: %v", err)
	}
	var out []corpusResource
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			tb.Fatal(err)
		}
		sc := bufio.NewScanner(z)
		sc.Buffer(nil, 16<<20)
		for sc.Scan() {
			url, m := jsonResource(tb, sc.Bytes())
			body, err := proto.Marshal(m)
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, corpusResource{f, url, body})
		}
		if err := sc.Err(); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

func jsonResource(tb testing.TB, line []byte) (string, proto.Message) {
	tb.Helper()
	var tree map[string]any
	if err := json.Unmarshal(line, &tree); err != nil {
		tb.Fatal(err)
	}
	url := tree["@type"].(string)
	delete(tree, "@type")
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(shortURL(url)))
	if err != nil {
		tb.Fatal(err)
	}
	body, err := json.Marshal(tree)
	if err != nil {
		tb.Fatal(err)
	}
	m := mt.New().Interface()
	if err := Message(body, m, false); err != nil {
		tb.Fatalf("%s: %v", url, err)
	}
	return url, m
}

func TestCorpusTranslatesOrIsRefusedByName(t *testing.T) {
	r := Default()
	refused := map[string]int{}
	n := 0
	for _, c := range corpus(t) {
		n++
		_, name, err := r.Resource(c.url, c.body)
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "not supported yet: '") {
			t.Errorf("%s %s: %v", c.file, name, err)
			continue
		}
		for _, part := range strings.Split(err.Error(), "; ") {
			if strings.HasPrefix(part, "and ") {
				continue // the count of the rest
			}
			i := slices.IndexFunc(notYet, func(u string) bool { return strings.Contains(part, "("+u+")") })
			if i < 0 {
				t.Errorf("%s %s: refused for another reason: %s", c.file, name, part)
				continue
			}
			refused[notYet[i]]++
		}
	}
	for _, u := range notYet {
		if refused[u] == 0 {
			t.Errorf("%s refuses nothing in the corpus any more: take it off the list", u)
		}
	}
	t.Logf("%d resources, refusals %v", n, refused)
}

func BenchmarkCorpus(b *testing.B) {
	r := Default()
	all := corpus(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, c := range all {
			r.Resource(c.url, c.body)
		}
	}
}
