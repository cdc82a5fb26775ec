package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// backupServed writes a backup of a file that is in use, by the server that has it open. The server
// at the address may have another file open: then, and if there is no server, the error also says
// that the file is in use.
func backupServed(
	ctx context.Context, cmd *cli.Command, path string, w io.Writer, inUseErr error,
) error {
	id, err := fileID(path)
	if err != nil {
		return fmt.Errorf("%w: %w", inUseErr, err)
	}
	c, err := client(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Backup(ctx, id, w)
	_, refused := errors.AsType[*lockclient.Error](err)
	if refused || errors.Is(err, lockclient.ErrUnreachable) ||
		errors.Is(err, lockclient.ErrOtherFile) {
		return &inUse{inUseErr, fmt.Sprintf("and no server gives a backup of it: %v; end that "+
			"process, wait for longer with --wait, or name the server with --http-addr", err)}
	}
	return err
}

// advisedOnCut adds to the error of an answer that is not a whole backup what to do.
func advisedOnCut(err error, to string) error {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	left := ""
	if to == standard {
		left = "; standard output has no whole one"
	}
	return fmt.Errorf("%w: the backup is cut off or damaged%s; ask again, and if a proxy is in "+
		"between, name the server itself with --http-addr", err, left)
}
