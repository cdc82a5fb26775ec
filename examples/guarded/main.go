// Guarded shows how a database that knows nothing of locks keeps out the late writes of a holder
// that lost its lock: each row has a column for the fence of the last writer, and a write with a
// lower fence changes nothing.
//
// Two workers take the same lock. The first is paused for longer than its session's TTL, and wakes
// up when the second has written. The example is a module of its own, since it needs SQLite.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lockd/lockd"
	_ "modernc.org/sqlite"
)

const schema = `
CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
INSERT INTO account VALUES ('alice', 100, 0)`

// A row takes the fence of the worker that writes it, and never a lower one again. The comparison
// and the write are one statement: between two statements, the lock could pass on.
const deposit = `
UPDATE account SET balance = ?, fence = ? WHERE name = ? AND fence <= ?`

var errLate = errors.New("a later holder of the lock has written")

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guarded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	accounts, err := sql.Open("sqlite", "file:accounts?mode=memory&cache=shared")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, accounts.Close()) }()
	accounts.SetMaxOpenConns(1)
	if _, err := accounts.ExecContext(ctx, schema); err != nil {
		return err
	}
	locks, err := lockd.New(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()

	first, err := take(ctx, locks, &lockd.SessionOptions{
		Name: "worker-1", TTL: 100 * time.Millisecond, LockDelay: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "worker-1 has the lock, and is paused before it writes")

	// The session of worker-1 is not renewed: this waits for its TTL and the lock-delay.
	second, err := take(ctx, locks, &lockd.SessionOptions{Name: "worker-2"})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "worker-2 has the lock, with a larger fence:",
		second.Sequencer().Fence > first.Sequencer().Fence)
	if err := write(ctx, accounts, second, 150); err != nil {
		return err
	}
	fmt.Fprintln(out, "worker-2 wrote 150")

	err = write(ctx, accounts, first, 90)
	if !errors.Is(err, errLate) {
		return fmt.Errorf("the late write of worker-1 was not refused: %w", err)
	}
	fmt.Fprintln(out, "worker-1 wakes up and writes 90:", err)

	var balance int
	row := accounts.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = 'alice'`)
	if err := row.Scan(&balance); err != nil {
		return err
	}
	fmt.Fprintln(out, "the balance is", balance)
	return nil
}

// take gets the lock of the account for a worker with a session of its own.
func take(ctx context.Context, db *lockd.DB, opts *lockd.SessionOptions) (*lockd.Lock, error) {
	session, err := db.NewSession(opts)
	if err != nil {
		return nil, err
	}
	return session.Lock(ctx, "account/alice", nil)
}

// write sets the balance, unless a later holder of the lock has set it before.
func write(ctx context.Context, db *sql.DB, lock *lockd.Lock, balance int) error {
	fence := int64(lock.Sequencer().Fence) // indexes are far below 2^63
	result, err := db.ExecContext(ctx, deposit, balance, fence, "alice", fence)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, errLate)
	}
	return nil
}
