"""Operations on dense rows."""
