package histories_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Each history closes its database, its server and its clients. None may leave a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
