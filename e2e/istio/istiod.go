package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/internal/meshtest/netns"
)

// Bed is a control plane and the pods under it.
type Bed struct {
	Dir      string
	Topology *netns.Topology
	kube     *kubeAPI
	stub     *http.Server
	istiod   *exec.Cmd
	stock    bool
	pods     []*Pod
	binaries binaries
}

// binaries are the paths of programs: ours, and the real ones.
type binaries struct{ proxy, init, discovery, agent, envoy, bootstrap string }

const (
	istiodIP = "10.96.0.10"
	hubIP    = "10.244.255.1"
)

// NewBed starts istiod. stock leaves out the filters that a stock Envoy doesn't
// know (Istio's own metadata exchange, ALPN and statistics), for beds with one.
func NewBed(ctx context.Context, dir, prefix string, stock bool, bin binaries) (*Bed, error) {
	kube, err := newKubeAPI("istio-system", "demo")
	if err != nil {
		return nil, err
	}
	b := &Bed{Dir: dir, kube: kube, stock: stock, binaries: bin}
	if b.Topology, err = netns.New(prefix, netip.MustParseAddr(hubIP), 16); err != nil {
		return nil, err
	}
	hub := b.Topology.Hub()
	for _, args := range [][]string{
		{"ip", "-n", hub.Name, "addr", "add", istiodIP + "/32", "dev", "lo"},
		{"ip", "netns", "exec", hub.Name, "sysctl", "-qw", "net.ipv4.ip_forward=1"},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out), b.Close())
		}
	}
	l, err := hub.Listen("127.0.0.1:18001")
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.stub = &http.Server{Handler: kube}
	go func() { _ = b.stub.Serve(l) }() // ends with Close
	if err := b.writeFiles(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.StartIstiod(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bed) path(parts ...string) string {
	return filepath.Join(append([]string{b.Dir, "istiod"}, parts...)...)
}

func (b *Bed) writeFiles() error {
	if err := errors.Join(os.MkdirAll(b.path("config"), 0o755), os.MkdirAll(b.path("etc", "cacerts"), 0o755)); err != nil {
		return err
	}
	if err := writeCA(b.path("etc", "cacerts")); err != nil {
		return err
	}
	mesh := "trustDomain: cluster.local\nrootNamespace: istio-system\naccessLogFile: /dev/stdout\ndefaultConfig:\n  discoveryAddress: istiod.istio-system.svc:15012\n"
	mesh += providersYAML
	if !b.stock {
		mesh += "defaultProviders:\n  metrics:\n  - prometheus\n"
	}
	const kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:18001\"}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	return errors.Join(
		os.WriteFile(b.path("mesh.yaml"), []byte(mesh), 0o644),
		os.WriteFile(b.path("kubeconfig"), []byte(kubeconfig), 0o644),
		os.WriteFile(b.path("config", "services.yaml"), []byte(servicesYAML), 0o644),
		os.WriteFile(b.path("config", "strict.yaml"), []byte(strictYAML), 0o644))
}

// Apply writes a configuration file that istiod watches; Delete removes it.
func (b *Bed) Apply(name, text string) error {
	return os.WriteFile(b.path("config", name+".yaml"), []byte(text), 0o644)
}

// Delete removes what Apply wrote.
func (b *Bed) Delete(name string) error { return os.Remove(b.path("config", name+".yaml")) }

// StartIstiod starts the control plane and waits until it serves.
func (b *Bed) StartIstiod(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(b.Dir, "istiod.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	hub := b.Topology.Hub()
	c := hub.Command(ctx, 0, b.binaries.discovery, "discovery", "--configDir="+b.path("config"), "--meshConfig="+b.path("mesh.yaml"),
		"--registries=Kubernetes", "--kubeconfig="+b.path("kubeconfig"), "--grpcAddr=:15010", "--secureGRPCAddr=:15012", "--httpAddr=:8080",
		"--httpsAddr=", "--monitoringAddr=:15014", "--ctrlz_port=0")
	c.Dir, c.Stdout, c.Stderr = b.path(), log, log
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "ISTIO_KUBE_CLIENT_CONTENT_TYPE=json", "POD_NAME=istiod-0", "POD_NAMESPACE=istio-system",
		"CLUSTER_ID=Kubernetes", "ROOT_CA_DIR=./etc/cacerts", "ISTIOD_CUSTOM_HOST=localhost"}
	if b.stock {
		c.Env = append(c.Env, "PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false")
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting istiod: %w", err)
	}
	b.istiod = c
	return until(ctx, 30*time.Second, "istiod to be ready", func() error {
		conn, err := hub.Dial(ctx, istiodIP+":15012")
		if err != nil {
			return err
		}
		conn.Close()
		return get(ctx, hub, "http://127.0.0.1:8080/ready", http.StatusOK)
	})
}

// StopIstiod kills the control plane as a crash would.
func (b *Bed) StopIstiod() {
	if b.istiod != nil {
		_ = b.istiod.Process.Kill()
		_ = b.istiod.Wait()
		b.istiod = nil
	}
}

// Close ends everything that the bed started.
func (b *Bed) Close() error {
	for _, p := range b.pods {
		p.Stop()
	}
	b.StopIstiod()
	if b.stub != nil {
		_ = b.stub.Close()
	}
	return b.Topology.Close()
}

// until polls f until it holds.
func until(ctx context.Context, limit time.Duration, what string, f func() error) error {
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, ctx.Err()))
}

func get(ctx context.Context, from *netns.Namespace, url string, want int) error {
	res, err := clientIn(from).Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		return fmt.Errorf("%s answered %s", url, res.Status)
	}
	return ctx.Err()
}

// writeCA makes the root and the intermediate that istiod signs with.
func writeCA(dir string) error {
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"e2e"}, CommonName: "root"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{Organization: []string{"e2e"}, CommonName: "intermediate"},
		NotBefore: root.NotBefore, NotAfter: root.NotAfter, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: root.KeyUsage}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, root, caKey.Public(), rootKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(caKey)
	if err != nil {
		return err
	}
	write := func(name, kind string, der []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644)
	}
	return errors.Join(write("root-cert.pem", "CERTIFICATE", rootDER), write("ca-cert.pem", "CERTIFICATE", caDER),
		write("cert-chain.pem", "CERTIFICATE", caDER), write("ca-key.pem", "EC PRIVATE KEY", keyDER))
}
