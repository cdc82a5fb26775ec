package main

import "github.com/urfave/cli/v3"

// checkKey refuses the empty key, which there is none of.
func checkKey(cmd *cli.Command, key string) error {
	if key == "" {
		return usage(cmd, "kv %s: KEY is empty", cmd.Name)
	}
	return nil
}

func kvCommand() *cli.Command {
	return &cli.Command{
		Name:     "kv",
		Category: atServer,
		Usage:    "read and write keys",
		Action:   noCommand,
		Commands: []*cli.Command{
			kvGetCommand(),
			kvPutCommand(),
			kvDeleteCommand(),
			kvListCommand(),
			kvExportCommand(),
			kvImportCommand(),
		},
	}
}
