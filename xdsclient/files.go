package xdsclient

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"sluice/internal/config"
	"sluice/xdsclient/link"
	"sluice/xdsclient/translate"
)

// fileEvery is how often watched files are looked at: a rotated certificate is
// in use within a second.
const fileEvery = 250 * time.Millisecond

// watchFiles starts a watch for each file that a secret comes from.
func (c *Client) watchFiles(ctx context.Context) {
	visit := func(refs []config.SecretRef) {
		for _, r := range refs {
			if r.Source == config.SecretFile && !c.files[r.Path] {
				c.files[r.Path] = true
				path := r.Path
				c.wg.Go(func() { c.watchFile(ctx, path) })
			}
		}
	}
	c.eachCluster(func(x *config.Cluster) { visit(link.ClusterSecrets(x)) })
	c.eachListener(func(x *config.Listener) { visit(link.ListenerSecrets(x)) })
}

// watchFile reads a file of secrets whenever its content changes. Polling sees
// every kind of replacement: rename, symbolic link, write in place.
func (c *Client) watchFile(ctx context.Context, path string) {
	watch := fileWatch{seen: map[string][]byte{path: nil}}
	registry := *c.opts.Translate
	registry.ReadFile = func(name string) ([]byte, error) {
		b, err := c.opts.Translate.ReadFile(name)
		watch.seen[name] = b
		return b, err
	}
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		if watch.changed() {
			secrets, err := FileSecrets(&registry, watch.seen[path])
			if err != nil {
				c.opts.Logf("secrets of %s refused: %v", path, err)
			}
			if len(secrets) > 0 {
				c.tell(event{secret: secrets})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// fileWatch remembers what the files that make up secrets held.
type fileWatch struct{ seen map[string][]byte }

// changed reads the files again and says whether one is new. A file that is
// away for the moment of its replacement is no change.
func (w *fileWatch) changed() bool {
	changed := false
	for name, before := range w.seen {
		b, err := os.ReadFile(name)
		if err == nil && !bytes.Equal(b, before) {
			w.seen[name] = b
			changed = true
		}
	}
	return changed
}

// FileSecrets reads the secrets of a discovery response in YAML or JSON. The
// good ones come with an error about the others.
func FileSecrets(r *translate.Registry, b []byte) ([]*config.Secret, error) {
	var m discovery.DiscoveryResponse
	if err := translate.Message(b, &m, true); err != nil {
		return nil, err
	}
	var out []*config.Secret
	var first error
	for i, x := range m.GetResources() {
		if x.GetTypeUrl() != translate.SecretURL {
			first = fmt.Errorf("resource %d is a %s", i, x.GetTypeUrl())
			continue
		}
		v, name, err := r.Resource(translate.SecretURL, x.GetValue())
		if err != nil {
			first = fmt.Errorf("secret %q: %w", name, err)
			continue
		}
		out = append(out, v.(*config.Secret))
	}
	return out, first
}
