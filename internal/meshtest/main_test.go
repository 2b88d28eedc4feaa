package meshtest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/meshtest"
)

// binaries are built once a run: the plain one, and the one with the race
// detector.
var binaries struct {
	dir         string
	plain, race func() (string, error)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "meshtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build := func(race bool) func() (string, error) {
		return sync.OnceValues(func() (string, error) {
			at := dir + "/" + strconv.FormatBool(race)
			if err := os.Mkdir(at, 0o755); err != nil {
				return "", err
			}
			return meshtest.Build(context.Background(), at, race)
		})
	}
	binaries.plain, binaries.race = build(false), build(true)
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func sidecar(t *testing.T) string {
	t.Helper()
	path, err := binaries.plain()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startPod starts a sidecar that ends with the test.
func startPod(t *testing.T, o meshtest.PodOptions) *meshtest.Pod {
	t.Helper()
	if o.Binary == "" {
		o.Binary = sidecar(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p, err := meshtest.StartPod(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			log := p.Log()
			t.Logf("the sidecar's log ends with:\n%s", log[max(0, len(log)-3000):])
		}
	})
	return p
}

func startPlane(t *testing.T, o meshtest.Options) *meshtest.Plane {
	t.Helper()
	p, err := meshtest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func newCA(t *testing.T) *meshtest.CA {
	t.Helper()
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// get fetches a page of the sidecar; an error is in the text, with status 0.
func get(port int, path string) (int, string) {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://127.0.0.1:" + strconv.Itoa(port) + path)
	return text(res, err)
}

func post(port int, path string) (int, string) {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Post("http://127.0.0.1:"+strconv.Itoa(port)+path, "", nil)
	return text(res, err)
}

func text(res *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

// eventually asks until the answer has the status and contains all of want.
func eventually(t *testing.T, port int, path string, status int, want ...string) string {
	t.Helper()
	var code int
	var body string
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		code, body = get(port, path)
		good := code == status
		for _, w := range want {
			good = good && strings.Contains(body, w)
		}
		if good {
			return body
		}
	}
	t.Fatalf("port %d %s: %d %q, want %d with %q", port, path, code, body, status, want)
	return ""
}
