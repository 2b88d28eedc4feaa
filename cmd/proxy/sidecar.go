package main

import (
	"context"
	"errors"
)

func serveSidecar(_ context.Context, _ host, _ agentFlags) error { return errors.New("sidecar") }
