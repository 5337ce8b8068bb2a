"""Words that pages show in the place of column names, codes and stored details."""
