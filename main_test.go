package lockd_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where the databases of the examples log
	goleak.VerifyTestMain(m)
}
