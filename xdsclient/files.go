package xdsclient

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
	"sluice/xdsclient/link"
	"sluice/xdsclient/translate"
)

// fileEvery is how often watched files are looked at: a rotated certificate is
// in use within a second.
const fileEvery = 250 * time.Millisecond

// watchSecrets starts a watch for each file or server that a secret comes from,
// but ADS.
func (c *Client) watchSecrets(ctx context.Context) {
	var late []string // of files that were read before and don't have them
	visit := func(refs iter.Seq[*config.SecretRef]) {
		for r := range refs {
			if r.Source == config.SecretFile && !slices.Contains(c.named[r.Path], r.Name) {
				c.named[r.Path] = append(c.named[r.Path], r.Name)
				c.counted(r.Name)
				if c.read[r.Path] && c.accepted.Secrets[r.Name] == nil {
					late = append(late, r.Name)
				}
			}
			switch {
			case r.Source == config.SecretFile && !c.files[r.Path]:
				c.files[r.Path] = true
				path := r.Path
				c.wg.Go(func() { c.watchFile(ctx, path) })
			case r.Source == config.SecretAgent && !c.files[r.Name]:
				switch body := agentFile(r.Name); {
				case body != nil:
					c.files[r.Name] = true
					c.wg.Go(func() { c.watchAgentFile(ctx, r.Name, body) })
				case c.opts.Secrets == nil:
					c.files[r.Name] = true
					c.counted(r.Name)
					c.wg.Go(func() { c.watchServer(ctx, *r) })
				}
			}
		}
	}
	c.eachCluster(func(x *config.Cluster) { visit(link.ClusterSecrets(x)) })
	c.eachListener(func(x *config.Listener) { visit(link.ListenerSecrets(x)) })
	c.refused(late...)
}

// watchFile reads a file of secrets whenever its content changes. Polling sees
// every kind of replacement: rename, symbolic link, write in place.
func (c *Client) watchFile(ctx context.Context, path string) {
	watch := fileWatch{seen: map[string][]byte{path: nil}}
	registry := watch.registry(c.opts.Translate)
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		if watch.changed() {
			secrets, err := FileSecrets(registry, watch.seen[path])
			if err != nil {
				c.opts.Logf("secrets of %s refused: %v", path, err)
			}
			c.tell(event{secret: secrets, file: path})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// counted makes a secret's statistics known before anything happens to it.
func (c *Client) counted(name string) {
	for _, stat := range [...]string{"update_attempt", "update_success", "update_rejected", "update_failure", "init_fetch_timeout"} {
		c.count("sds."+name+"."+stat, 0)
	}
}

// lacking gives the secrets that a file should have had, but for the good ones.
func (c *Client) lacking(path string, good []*config.Secret) []string {
	var out []string
	for _, name := range c.named[path] {
		if !slices.ContainsFunc(good, func(s *config.Secret) bool { return s.Name == name }) {
			c.opts.Logf("no good secret %q in %s", name, path)
			out = append(out, name)
		}
	}
	return out
}

// Names of secrets that Istio's agent makes of mounted files.
const (
	fileCert   = "file-cert:" // file-cert:CHAIN~KEY
	fileRoot   = "file-root:" // file-root:BUNDLE
	systemRoot = "file-root:system"
)

// agentFile gives the secret message of such a name, nil for other names.
func agentFile(name string) []byte {
	m := &tlsv3.Secret{Name: name}
	file := func(p string) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_Filename{Filename: p}}
	}
	switch {
	case name == systemRoot:
		m.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			SystemRootCerts: &tlsv3.CertificateValidationContext_SystemRootCerts{},
		}}
	case strings.HasPrefix(name, fileRoot):
		m.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: file(name[len(fileRoot):]),
		}}
	case strings.HasPrefix(name, fileCert):
		chain, key, _ := strings.Cut(name[len(fileCert):], "~")
		m.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: file(chain), PrivateKey: file(key)}}
	default:
		return nil
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	return b
}

// watchAgentFile makes a secret of mounted files, again whenever they change. A
// pair that doesn't fit is being replaced right now and comes with the next look.
func (c *Client) watchAgentFile(ctx context.Context, name string, body []byte) {
	watch := fileWatch{seen: map[string][]byte{}}
	registry := watch.registry(c.opts.Translate)
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	done := false
	for {
		if changed := watch.changed(); changed || !done {
			v, _, err := registry.Resource(translate.SecretURL, body)
			if done = err == nil; done {
				c.tell(event{secret: []*config.Secret{v.(*config.Secret)}})
			} else if changed {
				c.opts.Logf("secret %s: %v", name, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// registry gives a copy of r that remembers the files it reads.
func (w *fileWatch) registry(r *translate.Registry) *translate.Registry {
	out := *r
	out.ReadFile = func(name string) ([]byte, error) {
		b, err := r.ReadFile(name)
		w.seen[name] = b
		return b, err
	}
	return &out
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
