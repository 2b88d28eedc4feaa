// Package e2e runs pods under the unmodified istiod: its own control plane
// process, network namespaces with real redirect rules, applications, and
// sidecars that are sluice or the real agent with the real Envoy. istiod reads
// its configuration from files; the little it needs of a Kubernetes API server
// (empty lists, open watches, token reviews) is answered here.
package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// kubeAPI is what istiod sees of Kubernetes. Tokens are signed with its key.
type kubeAPI struct {
	key        *rsa.PrivateKey
	namespaces []string
}

func newKubeAPI(namespaces ...string) (*kubeAPI, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("making the token key: %w", err)
	}
	return &kubeAPI{key, namespaces}, nil
}

type object = map[string]any

type claims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Kube     object   `json:"kubernetes.io"`
}

// token is a projected service account token for audience istio-ca.
func (k *kubeAPI) token(namespace, account, pod string, life time.Duration) (string, error) {
	now := time.Now()
	body, err := json.Marshal(claims{
		Issuer: "https://kube.invalid", Subject: "system:serviceaccount:" + namespace + ":" + account, Audience: []string{"istio-ca"},
		Issued: now.Unix(), Expires: now.Add(life).Unix(),
		Kube: object{"namespace": namespace, "serviceaccount": object{"name": account, "uid": account}, "pod": object{"name": pod, "uid": pod}},
	})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT","kid":"1"}`)) + "." + enc.EncodeToString(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed + "." + enc.EncodeToString(signature), nil
}

func (k *kubeAPI) verify(token string) (c claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("not a JWT")
	}
	enc := base64.RawURLEncoding
	signature, err := enc.DecodeString(parts[2])
	if err != nil {
		return c, fmt.Errorf("decoding the signature: %w", err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&k.key.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		return c, err
	}
	body, err := enc.DecodeString(parts[1])
	if err != nil {
		return c, fmt.Errorf("decoding the claims: %w", err)
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return c, err
	}
	if time.Now().Unix() > c.Expires {
		return c, errors.New("token has expired")
	}
	return c, nil
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func notFound(w http.ResponseWriter) {
	answer(w, http.StatusNotFound, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"})
}

func (k *kubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch path {
	case "version":
		answer(w, 200, object{"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
		return
	case "api":
		answer(w, 200, object{"kind": "APIVersions", "versions": []string{"v1"}})
		return
	case "apis":
		answer(w, 200, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
		return
	}
	parts := strings.Split(path, "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 1:
		group, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 2:
		group, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		notFound(w)
		return
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		answer(w, 200, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []any{}})
		return
	}
	k.resource(w, r, group, parts)
}

// kinds are the collections that istiod lists or writes.
func kindOf(resource string) string {
	return map[string]string{
		"services": "Service", "nodes": "Node", "pods": "Pod", "endpointslices": "EndpointSlice", "namespaces": "Namespace", "secrets": "Secret",
		"configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount", "ingresses": "Ingress", "ingressclasses": "IngressClass", "leases": "Lease",
		"deployments": "Deployment", "customresourcedefinitions": "CustomResourceDefinition", "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
		"validatingwebhookconfigurations": "ValidatingWebhookConfiguration", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
		"poddisruptionbudgets": "PodDisruptionBudget", "clustertrustbundles": "ClusterTrustBundle", "endpoints": "Endpoints", "events": "Event",
	}[resource]
}

func (k *kubeAPI) resource(w http.ResponseWriter, r *http.Request, group string, parts []string) {
	kind := kindOf(parts[0])
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		group, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	switch {
	case r.Method == http.MethodPost && parts[0] == "tokenreviews":
		k.tokenReview(w, r)
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.Copy(w, r.Body)
	case r.Method != http.MethodGet:
		answer(w, 200, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case kind == "" || len(parts) > 1:
		notFound(w)
	default:
		k.list(w, r, group, kind, parts[0])
	}
}

func (k *kubeAPI) list(w http.ResponseWriter, r *http.Request, group, kind, resource string) {
	items := []object{}
	if resource == "namespaces" {
		for _, n := range k.namespaces {
			items = append(items, object{"apiVersion": group, "kind": kind, "metadata": object{
				"name": n, "uid": n, "resourceVersion": "1", "labels": object{"kubernetes.io/metadata.name": n}}})
		}
	}
	q := r.URL.Query()
	if q.Get("watch") != "true" && q.Get("watch") != "1" {
		answer(w, 200, object{"apiVersion": group, "kind": kind + "List", "metadata": object{"resourceVersion": "1"}, "items": items})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	enc := json.NewEncoder(w)
	if q.Get("sendInitialEvents") == "true" {
		for _, it := range items {
			_ = enc.Encode(object{"type": "ADDED", "object": it})
		}
		_ = enc.Encode(object{"type": "BOOKMARK", "object": object{"apiVersion": group, "kind": kind, "metadata": object{
			"resourceVersion": "1", "annotations": object{"k8s.io/initial-events-end": "true"}}}})
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	<-r.Context().Done()
}

func (k *kubeAPI) tokenReview(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Spec struct {
			Token     string   `json:"token"`
			Audiences []string `json:"audiences"`
		} `json:"spec"`
	}
	status := object{}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		status["error"] = err.Error()
	} else if c, err := k.verify(in.Spec.Token); err != nil {
		status["error"] = err.Error()
	} else {
		good := slices.DeleteFunc(c.Audience, func(a string) bool { return !slices.Contains(in.Spec.Audiences, a) })
		pod, _ := c.Kube["pod"].(object)
		status["authenticated"], status["audiences"] = len(good) > 0, good
		status["user"] = object{"username": c.Subject, "uid": "1", "groups": []string{"system:serviceaccounts", "system:authenticated"},
			"extra": object{"authentication.kubernetes.io/pod-name": []any{pod["name"]}, "authentication.kubernetes.io/pod-uid": []any{pod["uid"]}}}
	}
	answer(w, http.StatusCreated, object{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": status})
}
